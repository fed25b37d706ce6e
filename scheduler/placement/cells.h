// CellPicker: in which cell a router places a request. A cell is an orchestrator with its
// instances; it knows nothing of other cells, and a router needs to know of a cell only, for each
// model, how many requests it can hold and holds. So the cluster grows by cells, and a lost cell
// costs its share and no more.
//
// A request with an affinity key (a session, a tenant, the hash of a shared prefix) goes to the
// first cell in its own order of all cells: weighted rendezvous hashing (Thaler and Ravishankar,
// 1998), by what the cells hold. A cell that comes or goes moves only the keys that are its own. A
// cell that is fuller than `load_bound` times the mean, and than `calm`, is passed over
// ("consistent hashing with bounded loads", Mirrokni, Thorup and Zadimoghaddam, 2018), so that a
// popular key cannot drown its cell. A request without a key goes to the emptier of two random
// cells (Mitzenmacher, 2001): what routers know is as old as the last report, and the emptiest of
// all would be flooded by all of them at once.
//
// Not thread-safe. Deterministic: equal calls give equal picks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace skein::scheduler {

// The load of a model in a cell.
struct CellLoad {
  int64_t capacity =
      0;             // requests that its instances hold together; 0: it does not serve the model
  int64_t held = 0;  // of these, taken
  bool operator==(const CellLoad&) const = default;
};

struct CellPickerConfig {
  size_t cells = 1;
  double load_bound = 1.25;  // >= 1
  double calm = 0.25;        // a cell that is less full is never passed over
  uint64_t seed = 1;
};

class CellPicker {
 public:
  using Loads = std::map<std::string, CellLoad>;  // by model

  explicit CellPicker(const CellPickerConfig& config);

  // A cell's report. It gets requests from now on, and what was placed there before is known to
  // it. `routers`: how many place requests in it; each is taken to have placed as many since the
  // report as this one.
  void Report(size_t cell, Loads loads, int64_t routers = 1);
  // It cannot be reached: it gets nothing until its next report.
  void Lose(size_t cell);
  // It refused a request of the model for lack of room: taken for full until its next report.
  void Refuse(size_t cell, const std::string& model);
  bool IsAlive(size_t cell) const { return alive_.at(cell); }

  // The cell for a request, counted as held there from now on. `affinity` 0: none. Cells in
  // `tried` are passed over. Empty: no cell that is left is alive and serves the model. A cell that
  // is full is picked only when all are: its orchestrator refuses, or has room again by then.
  std::optional<size_t> Place(const std::string& model, uint64_t affinity,
                              const std::set<size_t>& tried = {});

 private:
  // A model in a cell.
  struct ModelInCell {
    int64_t capacity = 0;  // 0: it gets nothing
    int64_t held = 0;      // as reported
    int64_t placed = 0;    // by this router since
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
  size_t EmptierOfTwo(const std::vector<Candidate>& candidates);

  CellPickerConfig config_;
  std::vector<bool> alive_;                                 // by cell
  std::vector<int64_t> routers_;                            // by cell
  std::map<std::string, std::vector<ModelInCell>> models_;  // each by cell
  uint64_t random_;
};

}  // namespace skein::scheduler
