// What an orchestrator tells routers of its cell's room. A cell is an orchestrator with its
// instances.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace skein::scheduler {

// The load of a model in a cell.
struct CellLoad {
  // Requests that its instances hold together; 0: it does not serve the model.
  int64_t capacity = 0;
  int64_t held = 0;  // of these, taken
  bool operator==(const CellLoad&) const = default;
};
using CellLoads = std::map<std::string, CellLoad>;  // by model

struct CellReport {
  CellLoads models;
  int64_t routers = 1;  // that place requests in the cell
  bool operator==(const CellReport&) const = default;
};

}  // namespace skein::scheduler
