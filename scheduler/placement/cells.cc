#include "scheduler/placement/cells.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {
namespace {

uint64_t Mix(uint64_t x) { return Mix64(x + kMix64Step); }

// The highest score wins. Each cell wins with a probability proportional to its weight.
double RendezvousScore(uint64_t key, size_t cell, double weight) {
  const double unit = (static_cast<double>(Mix(key ^ Mix(cell)) >> 11) + 0.5) * 0x1p-53;
  return weight / -std::log(unit);
}

}  // namespace

CellPicker::CellPicker(const CellPickerConfig& config)
    : config_(config), alive_(config.cells), routers_(config.cells, 1), random_(config.seed) {}

void CellPicker::Report(size_t cell, const CellReport& report) {
  Lose(cell);
  alive_.at(cell) = true;
  routers_[cell] = std::max<int64_t>(report.routers, 1);
  for (const auto& [model, load] : report.models) {
    std::vector<ModelInCell>& cells = models_[model];
    cells.resize(alive_.size());
    cells[cell] = {.capacity = load.capacity, .held = load.held};
  }
}

void CellPicker::Lose(size_t cell) {
  alive_.at(cell) = false;
  for (auto& [model, cells] : models_) cells[cell] = {};
}

void CellPicker::Refuse(size_t cell, const std::string& model) {
  const auto found = models_.find(model);
  if (found == models_.end()) return;
  ModelInCell& here = found->second.at(cell);
  here.held = std::max(here.held, here.capacity);
}

std::optional<size_t> CellPicker::Place(const std::string& model, uint64_t affinity,
                                        const std::set<size_t>& tried) {
  const auto found = models_.find(model);
  if (found == models_.end()) return std::nullopt;
  std::vector<Candidate> candidates = CandidatesFor(found->second, tried);
  if (candidates.empty()) return std::nullopt;
  const size_t cell =
      affinity != 0 ? ByAffinity(candidates, affinity) : EmptierOfTwo(std::move(candidates));
  ++found->second[cell].placed;
  return cell;
}

std::vector<CellPicker::Candidate> CellPicker::CandidatesFor(const std::vector<ModelInCell>& cells,
                                                             const std::set<size_t>& tried) const {
  std::vector<Candidate> candidates;
  candidates.reserve(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    const ModelInCell& here = cells[i];
    if (here.capacity <= 0 || tried.count(i) > 0) continue;
    const int64_t held = here.held + here.placed * routers_[i];
    candidates.push_back({.cell = i,
                          .capacity = static_cast<double>(here.capacity),
                          .held = static_cast<double>(held)});
  }
  return candidates;
}

size_t CellPicker::ByAffinity(const std::vector<Candidate>& candidates, uint64_t affinity) const {
  double capacity = 0, held = 0;
  for (const Candidate& one : candidates) {
    capacity += one.capacity;
    held += one.held;
  }
  const double bound = std::max(config_.load_bound * (held + 1) / capacity, config_.calm);
  std::optional<size_t> best;
  double best_score = 0;
  const Candidate* emptiest = &candidates.front();
  for (const Candidate& one : candidates) {
    if (one.Share() < emptiest->Share()) emptiest = &one;
    if (one.held >= one.capacity || one.held > bound * one.capacity) continue;
    const double score = RendezvousScore(affinity, one.cell, one.capacity);
    if (best.has_value() && score <= best_score) continue;
    best = one.cell;
    best_score = score;
  }
  return best.has_value() ? *best : emptiest->cell;
}

size_t CellPicker::EmptierOfTwo(std::vector<Candidate> candidates) {
  const auto full = [](const Candidate& one) { return one.held >= one.capacity; };
  if (!std::all_of(candidates.begin(), candidates.end(), full)) std::erase_if(candidates, full);
  const size_t first = Mix(++random_) % candidates.size();
  if (candidates.size() == 1) return candidates[0].cell;
  size_t second = Mix(++random_) % (candidates.size() - 1);
  if (second >= first) ++second;
  const Candidate& a = candidates[first];
  const Candidate& b = candidates[second];
  return b.Share() < a.Share() ? b.cell : a.cell;
}

absl::Status CellPicker::CheckInvariants() const {
  for (const auto& [model, cells] : models_) {
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      const ModelInCell& here = cells[cell];
      const bool possible = here.capacity >= 0 && here.held >= 0 && here.placed >= 0;
      if (possible && (alive_[cell] || here.capacity == 0) && routers_[cell] >= 1) continue;
      return absl::InternalError(absl::StrCat(
          "CellPicker: cell ", cell, alive_[cell] ? "" : ", not alive", ", model ", model,
          ": capacity ", here.capacity, ", held ", here.held, ", placed ", here.placed));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
