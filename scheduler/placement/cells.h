// CellPicker: chooses the cell for a request at a router. A cell is an orchestrator with its
// instances and knows nothing of other cells. A router knows of each cell only, per model, its
// request capacity and how much of it is used. So the cluster grows by cells, and losing a cell
// costs only that cell's share.
//
// A request with an affinity key (a session, a tenant, the hash of a shared prefix) goes to the
// first cell in the key's own order of cells: weighted rendezvous hashing (Thaler and Ravishankar,
// 1998), weighted by capacity. A cell that joins or leaves moves only its own keys. A cell whose
// fill exceeds `load_bound` times the mean and exceeds `calm` is skipped ("consistent hashing with
// bounded loads", Mirrokni, Thorup and Zadimoghaddam, 2018), so that a popular key cannot overload
// its cell. A request without a key goes to the emptier of two random cells (Mitzenmacher, 2001):
// routers' data is as old as the last report, and the emptiest cell would be flooded by all of them
// at once.
//
// Not thread-safe. Deterministic: equal calls give equal picks.
//
// Invariants (CheckInvariants): a cell that is not alive has no model, and no capacity, load or
// number of routers is one that none can have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/cell_load.h"

namespace skein::scheduler {

struct CellPickerConfig {
  size_t cells = 1;
  double load_bound = 1.25;  // >= 1
  double calm = 0.25;        // a cell below this fill is never skipped
  uint64_t seed = 1;
};

class CellPicker {
 public:
  explicit CellPicker(const CellPickerConfig& config);

  // A cell's report. From now on it gets requests; the report covers those placed before. Each of
  // its routers (0: this one alone) is assumed to have placed as many since as this one.
  void Report(size_t cell, const CellReport& report);
  // The cell cannot be reached: it gets nothing until its next report.
  void Lose(size_t cell);
  // The cell refused a request of the model for lack of room: treated as full until its next
  // report.
  void Refuse(size_t cell, const std::string& model);
  bool IsAlive(size_t cell) const { return alive_.at(cell); }

  // The cell for a request, counted as held there from now on. `affinity` 0: no key. Skips cells in
  // `tried`. Empty: no remaining cell is alive and serves the model. A full cell is picked only if
  // all are full; its orchestrator then refuses, or has room again.
  std::optional<size_t> Place(const std::string& model, uint64_t affinity,
                              const std::set<size_t>& tried = {});

  absl::Status CheckInvariants() const;

 private:
  // A model in a cell.
  struct ModelInCell {
    int64_t capacity = 0;  // 0: gets no requests
    int64_t held = 0;      // as reported
    int64_t placed = 0;    // by this router, since the report
  };
  struct Candidate {
    size_t cell = 0;
    double capacity = 0;
    double held = 0;
    double Share() const { return held / capacity; }
  };

  std::vector<Candidate> CandidatesFor(const std::vector<ModelInCell>& places,
                                       const std::set<size_t>& tried) const;
  size_t ByAffinity(const std::vector<Candidate>& candidates, uint64_t affinity) const;
  size_t EmptierOfTwo(std::vector<Candidate> candidates);

  CellPickerConfig config_;
  std::vector<bool> alive_;                                 // by cell
  std::vector<int64_t> routers_;                            // by cell
  std::map<std::string, std::vector<ModelInCell>> models_;  // each by cell
  uint64_t random_;
};

}  // namespace skein::scheduler
