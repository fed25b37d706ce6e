// Simulates routers over cells with the shipped RouterCore (scheduler/router/router_core.h): its
// sessions, its choice of a cell, its moves between cells. Each cell answers as a cheap model of an
// orchestrator with its instances would; one of them may be lost with all its instances.
// CellSimulation (cell_simulation.h) has the choice alone, with popular keys.
//
// A cell accepts a request while an instance has room, places it there at once, and streams one
// token after a fifth of its time and the end after all of it. Otherwise it answers 429. A lost
// cell breaks its streams to routers and the token streams of its instances, and stays away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace skein::scheduler {

struct RouterCellsOptions {
  uint64_t seed = 1;
  size_t cells = 64;
  size_t instances = 1024;        // of a cell
  int64_t instance_requests = 1;  // that an instance holds at a time
  size_t routers = 16;
  double utilisation = 0.7;  // offered load relative to the capacity of all cells
  double service_s = 1;      // mean time of a request at its instance; exponential
  double delay_s = 2e-4;     // of a message
  double report_s = 0.5;    // interval of a router's reports to a cell, each answered with its load
  double lease_s = 0.5;     // after which routers take a cell that is gone for lost
  double keyed = 0.5;       // share of requests with an affinity key
  uint64_t keys = 100'000;  // equally popular
  double run_s = 2.5;       // requests arrive for so long; then all of them end
  double lost_s = -1;       // cell 0 is lost then; < 0: none is
  std::function<double()> clock_s;  // to measure the routers' cores by; null: not measured
};

// How full the cells are that are alive, as shares of their capacity.
struct CellFill {
  double mean = 0;
  double fullest = 0;
  double emptiest = 0;
};

struct RouterCellsResult {
  int64_t requests = 0;
  int64_t finished = 0;
  int64_t failed = 0;             // ended with an error, but for those refused
  int64_t refused = 0;            // 429
  int64_t lost = 0;               // had their first token when their cell was lost
  int64_t held_lost = 0;          // all that the cell held then
  int64_t held = 0;               // by all cells then
  uint64_t moved = 0;             // since their cell was lost
  int64_t found_full = 0;         // 429 of a cell; the router tried another one
  std::vector<int64_t> placed;    // by cell
  CellFill before;                // when a cell is lost; without a loss: when arrivals end
  CellFill after;                 // when arrivals end
  int64_t instance_held_max = 0;  // ever
  int64_t events = 0;             // that the routers' cores handled
  double core_s = 0;              // time that they took
  std::string violation;          // of an invariant of a core; empty: none
};

RouterCellsResult SimulateRouterCells(const RouterCellsOptions& options);

}  // namespace skein::scheduler
