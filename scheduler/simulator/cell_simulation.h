// Simulates routers over cells (scheduler/placement/cells.h): many more instances than one
// orchestrator plans for, delayed load reports, popular keys, and the loss of a cell.
//
// A cell accepts a request below its capacity and holds it for an exponential time. Otherwise it
// refuses (its orchestrator's 429) and the router tries other cells, at most two. A lost cell loses
// the requests it holds. Routers notice the loss at their next attempt and then try another cell,
// at no cost to the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skein::scheduler {

struct CellSimulationOptions {
  uint64_t seed = 1;
  size_t cells = 64;
  int64_t requests_per_cell = 1024;  // capacity of its instances together
  size_t routers = 32;
  double utilisation = 0.7;  // offered load relative to the capacity of all cells
  double service_s = 2;      // mean
  double report_s = 0.5;     // interval of a cell's reports to each router
  double keyed = 0.8;        // share of requests with an affinity key
  size_t keys = 20000;
  double popularity = 0.9;  // exponent of the keys' Zipf distribution
  double load_bound = 1.25;
  double run_s = 10;
  // One cell is lost at `lost_s` and returns empty at `back_s`. < 0: no loss.
  double lost_s = -1;
  double back_s = -1;
};

struct CellSimulationResult {
  int64_t requests = 0;
  int64_t refused = 0;     // every cell tried was full
  int64_t lost = 0;        // held by the cell when it was lost
  int64_t found_lost = 0;  // tried the lost cell first, then placed in another
  int64_t found_full = 0;  // tried a full cell first
  int64_t keyed = 0;       // with a key that was used before
  int64_t stayed = 0;      // of these, placed in the same cell as the key's last request
  // Sampled often once the cells are filled (after three mean service times): the maximum fill of
  // any cell, and the mean fill.
  double fullest = 0;
  double mean = 0;
  std::vector<int64_t> placed;  // by cell
  std::vector<int64_t> placed_while_lost;
};

CellSimulationResult SimulateCells(const CellSimulationOptions& options);

}  // namespace skein::scheduler
