#include "scheduler/simulator/cell_simulation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "scheduler/placement/cells.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

constexpr char kModel[] = "m";
constexpr size_t kLostCell = 0;
constexpr size_t kTries = 3;
constexpr double kSampleSeconds = 0.07;

// Zipf-distributed ranks.
class Zipf {
 public:
  Zipf(size_t ranks, double exponent) {
    double sum = 0;
    for (size_t rank = 1; rank <= ranks; ++rank) {
      sum += std::pow(static_cast<double>(rank), -exponent);
      sums_.push_back(sum);
    }
  }
  size_t Sample(Random& random) const {
    const double at = random.Uniform() * sums_.back();
    return static_cast<size_t>(std::lower_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

struct Event {
  enum class Kind { kArrival, kEnd, kReport, kSample, kLoss, kReturn };
  double at_s = 0;
  uint64_t number = 0;  // orders events with equal times
  Kind kind = Kind::kArrival;
  size_t cell = 0;
  uint64_t life = 0;  // of the cell, at placement
  bool operator>(const Event& other) const {
    return std::pair(at_s, number) > std::pair(other.at_s, other.number);
  }
};

class CellWorld {
 public:
  explicit CellWorld(const CellSimulationOptions& options)
      : options_(options),
        random_(options.seed),
        popularity_(options.keys, options.popularity),
        cells_(options.cells),
        last_cell_(options.keys) {
    for (size_t i = 0; i < options.routers; ++i) {
      routers_.emplace_back(CellPickerConfig{
          .cells = options.cells, .load_bound = options.load_bound, .seed = random_.Next()});
    }
    result_.placed.resize(options.cells);
    result_.placed_while_lost.resize(options.cells);
  }

  CellSimulationResult Run() {
    for (size_t cell = 0; cell < cells_.size(); ++cell) {
      Report(cell);
      Add(random_.Uniform() * options_.report_s, Event::Kind::kReport, cell);
    }
    Add(0, Event::Kind::kArrival);
    Add(3 * options_.service_s, Event::Kind::kSample);  // when the cells are filled
    if (options_.lost_s >= 0) Add(options_.lost_s, Event::Kind::kLoss, kLostCell);
    if (options_.back_s >= 0) Add(options_.back_s, Event::Kind::kReturn, kLostCell);
    while (events_.top().at_s < options_.run_s) {
      const Event event = events_.top();
      events_.pop();
      now_s_ = event.at_s;
      Handle(event);
    }
    result_.mean = samples_ == 0 ? 0 : sum_ / static_cast<double>(samples_);
    return std::move(result_);
  }

 private:
  struct Cell {
    bool alive = true;
    uint64_t life = 1;
    int64_t held = 0;
  };

  void Add(double after_s, Event::Kind kind, size_t cell = 0, uint64_t life = 0) {
    events_.push({now_s_ + after_s, ++numbers_, kind, cell, life});
  }

  void Handle(const Event& event) {
    Cell& cell = cells_[event.cell];
    switch (event.kind) {
      case Event::Kind::kArrival:
        Arrive();
        Add(random_.Exponential(MeanGapSeconds()), Event::Kind::kArrival);
        break;
      case Event::Kind::kEnd:
        if (cell.life == event.life) --cell.held;
        break;
      case Event::Kind::kReport:
        if (cell.alive) Report(event.cell);
        Add(options_.report_s, Event::Kind::kReport, event.cell);
        break;
      case Event::Kind::kSample:
        for (const Cell& one : cells_) Sample(one);
        Add(kSampleSeconds, Event::Kind::kSample);
        break;
      case Event::Kind::kLoss:
        result_.lost += cell.held;
        cell = {.alive = false, .life = cell.life + 1, .held = 0};
        break;
      case Event::Kind::kReturn:
        cell.alive = true;
        break;
    }
  }

  double MeanGapSeconds() const {
    const double held = options_.utilisation * static_cast<double>(options_.cells) *
                        static_cast<double>(options_.requests_per_cell);
    return options_.service_s / held;
  }

  void Report(size_t cell) {
    const CellPicker::Loads loads = {{kModel, {options_.requests_per_cell, cells_[cell].held}}};
    const auto routers = static_cast<int64_t>(routers_.size());
    for (CellPicker& router : routers_) router.Report(cell, loads, routers);
  }

  void Sample(const Cell& cell) {
    if (!cell.alive) return;
    const double share =
        static_cast<double>(cell.held) / static_cast<double>(options_.requests_per_cell);
    result_.fullest = std::max(result_.fullest, share);
    sum_ += share;
    ++samples_;
  }

  void Arrive() {
    ++result_.requests;
    CellPicker& router = routers_[random_.Below(routers_.size())];
    std::optional<size_t> key;
    if (random_.Uniform() <= options_.keyed) key = popularity_.Sample(random_);
    const std::optional<size_t> cell = PlaceBy(router, key.has_value() ? *key + 1 : 0);
    if (!cell.has_value()) {
      ++result_.refused;
      return;
    }
    ++result_.placed[*cell];
    if (!cells_[kLostCell].alive) ++result_.placed_while_lost[*cell];
    ++cells_[*cell].held;
    Add(random_.Exponential(options_.service_s), Event::Kind::kEnd, *cell, cells_[*cell].life);
    if (!key.has_value()) return;
    std::optional<size_t>& last = last_cell_[*key];
    result_.keyed += last.has_value() ? 1 : 0;
    result_.stayed += last == cell ? 1 : 0;
    last = cell;
  }

  std::optional<size_t> PlaceBy(CellPicker& router, uint64_t affinity) {
    std::set<size_t> tried;
    size_t full = 0;
    while (full < kTries) {
      const std::optional<size_t> cell = router.Place(kModel, affinity, tried);
      if (!cell.has_value()) return std::nullopt;
      tried.insert(*cell);
      if (!cells_[*cell].alive) {
        ++result_.found_lost;
        router.Lose(*cell);
      } else if (cells_[*cell].held >= options_.requests_per_cell) {
        ++result_.found_full;
        router.Refuse(*cell, kModel);
        ++full;
      } else {
        return cell;
      }
    }
    return std::nullopt;
  }

  const CellSimulationOptions options_;
  Random random_;
  const Zipf popularity_;
  double now_s_ = 0;
  uint64_t numbers_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Cell> cells_;
  std::vector<CellPicker> routers_;
  std::vector<std::optional<size_t>> last_cell_;  // by key
  double sum_ = 0;
  int64_t samples_ = 0;
  CellSimulationResult result_;
};

}  // namespace

CellSimulationResult SimulateCells(const CellSimulationOptions& options) {
  return CellWorld(options).Run();
}

}  // namespace skein::scheduler
