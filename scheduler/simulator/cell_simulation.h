// Simulates routers over cells (scheduler/placement/cells.h): many more instances than one
// orchestrator plans for, loads that routers hear of late, popular keys, and the loss of a cell.
//
// A cell takes a request if it holds fewer than it can, for an exponential time; else it refuses
// (429 of its orchestrator) and the router tries another cell, twice at most. A lost cell loses
// what it holds; routers find it lost when they next try it, and then try another cell: that costs
// the client nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skein::scheduler {

struct CellSimulationOptions {
  uint64_t seed = 1;
  size_t cells = 64;
  int64_t requests_per_cell = 1024;  // that its instances hold together
  size_t routers = 32;
  double utilisation = 0.7;  // offered: of what all cells hold
  double service_s = 2;      // mean
  double report_s = 0.5;     // of a cell, to each router
  double keyed = 0.8;        // share of requests with an affinity key
  size_t keys = 20000;
  double popularity = 0.9;  // exponent of the keys' Zipf distribution
  double load_bound = 1.25;
  double run_s = 10;
  // One cell is lost at `lost_s`, and comes back empty at `back_s`. < 0: none is.
  double lost_s = -1;
  double back_s = -1;
};

struct CellSimulationResult {
  int64_t requests = 0;
  int64_t refused = 0;     // each cell that was tried was full
  int64_t lost = 0;        // were in the cell when it was lost
  int64_t found_lost = 0;  // met the lost cell first, and were placed in another
  int64_t found_full = 0;  // met a full cell first
  int64_t keyed = 0;       // with a key that was seen before
  int64_t stayed = 0;      // of these, placed where the key's last request was
  // Once the cells are filled (after three mean services), often: what the fullest cell holds of
  // what it can, at the most; and the mean.
  double fullest = 0;
  double mean = 0;
  std::vector<int64_t> placed;  // by cell
  std::vector<int64_t> placed_while_lost;
};

CellSimulationResult SimulateCells(const CellSimulationOptions& options);

}  // namespace skein::scheduler
