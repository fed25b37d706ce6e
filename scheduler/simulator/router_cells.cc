#include "scheduler/simulator/router_cells.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <utility>
#include <variant>

#include "scheduler/router/router_core.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

constexpr char kModel[] = "m";
constexpr size_t kLostCell = 0;
constexpr double kFirstTokenShare = 0.2;

TimeUs Micros(double seconds) { return static_cast<TimeUs>(seconds * 1e6); }

// An orchestrator with its instances: which requests each of them holds.
class ModelCell {
 public:
  struct Held {
    size_t router = 0;
    size_t instance = 0;
    Epoch epoch;
    bool streams = false;  // its first token was sent, and the end was not
  };

  ModelCell(size_t instances, int64_t instance_requests)
      : instance_requests_(instance_requests), instances_(instances) {}

  int64_t capacity() const { return static_cast<int64_t>(instances_.size()) * instance_requests_; }
  int64_t held_count() const { return static_cast<int64_t>(held_.size()); }
  double fill() const {
    return static_cast<double>(held_count()) / static_cast<double>(capacity());
  }
  int64_t instance_held_max() const { return instance_held_max_; }

  CellReport Report(size_t routers) const {
    return {.models = {{kModel, {capacity(), held_count()}}},
            .routers = static_cast<int64_t>(routers)};
  }
  // At the emptier of two instances; at the next that has room if both are full. Null: none has.
  const Held* Place(RequestId id, size_t router, Random& random) {
    if (held_count() >= capacity()) return nullptr;
    size_t instance = random.Below(instances_.size());
    const size_t other = random.Below(instances_.size());
    if (instances_[other] < instances_[instance]) instance = other;
    while (instances_[instance] >= instance_requests_)
      instance = (instance + 1) % instances_.size();
    instance_held_max_ = std::max(instance_held_max_, ++instances_[instance]);
    return &held_.insert_or_assign(id, Held{router, instance, {++last_epoch_}}).first->second;
  }
  Held* Find(RequestId id, Epoch epoch) {
    const auto it = held_.find(id);
    return it == held_.end() || it->second.epoch != epoch ? nullptr : &it->second;
  }
  void End(RequestId id) {
    const auto it = held_.find(id);
    if (it == held_.end()) return;
    --instances_[it->second.instance];
    held_.erase(it);
  }
  std::map<RequestId, Held> TakeAll() { return std::exchange(held_, {}); }

 private:
  int64_t instance_requests_;
  std::vector<int64_t> instances_;  // how many requests each holds
  std::map<RequestId, Held> held_;
  uint64_t last_epoch_ = 0;
  int64_t instance_held_max_ = 0;
};

// What happens at a time: at a router, or at a cell.
struct Arrival {};
struct ToRouter {
  size_t router = 0;
  RouterEvent event;
};
struct Submitted {
  size_t router = 0;
  size_t cell = 0;
  RequestId id;
};
struct Ended {  // for its client
  size_t cell = 0;
  RequestId id;
};
struct TokenDue {  // the first; then the end
  size_t cell = 0;
  RequestId id;
  Epoch epoch;
  TimeUs rest_us = 0;
};
struct FinishDue {
  size_t cell = 0;
  RequestId id;
  Epoch epoch;
};
struct Loss {};
using Happening = std::variant<Arrival, ToRouter, Submitted, Ended, TokenDue, FinishDue, Loss>;

class RouterCellsWorld {
 public:
  explicit RouterCellsWorld(const RouterCellsOptions& options)
      : options_(options), random_(options.seed), delay_us_(Micros(options.delay_s)) {
    cells_.assign(options.cells, ModelCell(options.instances, options.instance_requests));
    result_.placed.resize(options.cells);
    RouterConfig config;
    config.cells = options.cells;
    config.max_streams = cells_[0].capacity() * static_cast<int64_t>(options.cells);
    config.session.report_us = Micros(options.report_s);
    for (size_t i = 0; i < options.routers; ++i) {
      routers_.push_back({std::make_unique<RouterCore>(config)});
    }
  }

  RouterCellsResult Run() {
    for (size_t i = 0; i < routers_.size(); ++i) {
      Handle(i, Join{{.router = i + 1, .endpoint = "r", .host = "h"}});
    }
    // When the streams to all cells stand.
    start_us_ = 10 * delay_us_;
    end_us_ = start_us_ + Micros(options_.run_s);
    At(start_us_, Arrival{});
    if (options_.lost_s >= 0) At(start_us_ + Micros(options_.lost_s), Loss{});
    while (!queue_.empty() && (now_us_ < end_us_ || open_ > 0) && result_.violation.empty()) {
      // The queue's order does not depend on `what`.
      Happening what = std::move(const_cast<Entry&>(queue_.top()).what);
      now_us_ = queue_.top().at_us;
      queue_.pop();
      std::visit([this](auto& one) { On(one); }, what);
    }
    Check();
    for (const Router& router : routers_) result_.moved += router.core->Snapshot().moved_lost;
    for (const ModelCell& cell : cells_) {
      result_.instance_held_max = std::max(result_.instance_held_max, cell.instance_held_max());
    }
    return std::move(result_);
  }

 private:
  struct Entry {
    TimeUs at_us = 0;
    uint64_t number = 0;  // orders what happens at one time
    Happening what;
    bool operator>(const Entry& other) const {
      return std::pair(at_us, number) > std::pair(other.at_us, other.number);
    }
  };
  struct Router {
    std::unique_ptr<RouterCore> core;
    uint64_t last_serial = 0;
    TimeUs tick_us = kNever;
  };

  void At(TimeUs at_us, Happening what) { queue_.push({at_us, ++numbers_, std::move(what)}); }
  void Tell(size_t router, RouterEvent event) {
    At(now_us_ + delay_us_, ToRouter{router, std::move(event)});
  }
  bool Alive(size_t cell) const { return !lost_ || cell != kLostCell; }

  // ---- at the routers ----

  void On(const Arrival&) {
    if (now_us_ >= end_us_) return NoteFill(&result_.after);
    const double capacity =
        static_cast<double>(cells_[0].capacity()) * static_cast<double>(options_.cells);
    const double gap_s = random_.Exponential(options_.service_s / options_.utilisation / capacity);
    next_arrival_s_ += gap_s;
    At(start_us_ + Micros(next_arrival_s_), Arrival{});
    const size_t router = random_.Below(routers_.size());
    auto spec = std::make_shared<RequestHead>();
    spec->id = {router + 1, ++routers_[router].last_serial};
    spec->model = kModel;
    spec->prompt_tokens = 1;
    spec->max_tokens = 1;
    const bool keyed = random_.Uniform() <= options_.keyed;
    ++result_.requests;
    ++open_;
    Handle(router, Arrived{.spec = std::move(spec),
                           .affinity = keyed ? 1 + random_.Below(options_.keys) : 0});
  }

  void On(const ToRouter& one) {
    Router& router = routers_[one.router];
    if (std::holds_alternative<RouterTick>(one.event)) {
      if (router.tick_us > now_us_) return;  // an earlier one was set meanwhile, and has been
      router.tick_us = kNever;
    }
    Handle(one.router, one.event);
  }

  void Handle(size_t number, const RouterEvent& event) {
    Router& router = routers_[number];
    const double begin_s = options_.clock_s ? options_.clock_s() : 0;
    std::vector<RouterEffect> effects = router.core->Handle(event, now_us_);
    if (options_.clock_s) result_.core_s += options_.clock_s() - begin_s;
    ++result_.events;
    for (RouterEffect& effect : effects) {
      std::visit([this, number](auto& one) { Execute(number, one); }, effect);
    }
    const TimeUs due_us = router.core->NextDeadline();
    if (due_us >= router.tick_us) return;
    router.tick_us = std::max(due_us, now_us_ + 1);
    At(router.tick_us, ToRouter{number, RouterTick{}});
  }

  void Execute(size_t router, OpenLink& link) {
    if (!Alive(link.cell)) {
      return Tell(router, LinkBroken{absl::UnavailableError("the cell is gone"), link.cell});
    }
    Tell(router, Welcomed{{.status = absl::OkStatus(),
                           .generation = {1, {link.cell + 1}},
                           .lease_us = Micros(options_.lease_s),
                           .cell = cells_[link.cell].Report(routers_.size())},
                          link.cell});
  }
  void Execute(size_t router, SendRouterReport& report) {
    if (!Alive(report.cell)) return;
    Tell(router, RouterReportTaken{cells_[report.cell].Report(routers_.size()), report.cell});
  }
  void Execute(size_t router, SendSubmit& submit) {
    At(now_us_ + delay_us_, Submitted{router, submit.cell, submit.spec->id});
  }
  void Execute(size_t, SendRouterEnd& ended) {
    At(now_us_ + delay_us_, Ended{ended.cell, ended.end.id});
  }
  void Execute(size_t, Reject&) {
    --open_;
    ++result_.refused;
  }
  void Execute(size_t, End& end) {
    --open_;
    const bool refused = absl::IsResourceExhausted(end.status);
    ++(end.status.ok() ? result_.finished : refused ? result_.refused : result_.failed);
  }
  template <class Effect>
  void Execute(size_t, Effect&) {}  // tokens, which the cells send by themselves

  // ---- at the cells ----

  void On(const Submitted& one) {
    if (!Alive(one.cell)) return;
    const ModelCell::Held* held = cells_[one.cell].Place(one.id, one.router, random_);
    if (held == nullptr) {
      ++result_.found_full;
      return Tell(one.router, PlanUpdateReceived{
                                  one.id, Failed{absl::ResourceExhaustedError("full")}, one.cell});
    }
    ++result_.placed[one.cell];
    const InstanceId instance{held->instance + 1};
    Tell(one.router, PlanUpdateReceived{one.id, Planned{held->epoch, instance}, one.cell});
    Tell(one.router, PlanUpdateReceived{one.id, Placed{held->epoch, instance, "d"}, one.cell});
    const double service_s = random_.Exponential(options_.service_s);
    const TimeUs first_us = Micros(service_s * kFirstTokenShare);
    At(now_us_ + delay_us_ + first_us,
       TokenDue{one.cell, one.id, held->epoch, Micros(service_s) - first_us});
  }

  void On(const TokenDue& due) {
    ModelCell::Held* held = cells_[due.cell].Find(due.id, due.epoch);
    if (held == nullptr) return;
    held->streams = true;
    Tell(held->router, TokenReceived{.id = due.id, .epoch = due.epoch, .index = 0, .token = 1});
    At(now_us_ + due.rest_us, FinishDue{due.cell, due.id, due.epoch});
  }

  void On(const FinishDue& due) {
    ModelCell::Held* held = cells_[due.cell].Find(due.id, due.epoch);
    if (held == nullptr) return;
    held->streams = false;
    Tell(held->router, FinishedReceived{.id = due.id,
                                        .epoch = due.epoch,
                                        .reason = FinishReason::kLength,
                                        .status = absl::OkStatus(),
                                        .output_tokens = 1});
  }

  void On(const Ended& ended) { cells_[ended.cell].End(ended.id); }

  // What is on its way to a router still arrives before the word of the loss.
  void On(const Loss&) {
    NoteFill(&result_.before);
    for (const ModelCell& cell : cells_) result_.held += cell.held_count();
    lost_ = true;
    const absl::Status gone = absl::UnavailableError("the cell is gone");
    for (const auto& [id, held] : cells_[kLostCell].TakeAll()) {
      ++result_.held_lost;
      result_.lost += held.streams ? 1 : 0;
      Tell(held.router, TokenStreamLost{id, held.epoch, gone});
    }
    for (size_t i = 0; i < routers_.size(); ++i) Tell(i, LinkBroken{gone, kLostCell});
    Check();
  }

  void NoteFill(CellFill* fill) const {
    *fill = {.mean = 0, .fullest = 0, .emptiest = 1};
    size_t alive = 0;
    for (size_t cell = 0; cell < cells_.size(); ++cell) {
      if (!Alive(cell)) continue;
      ++alive;
      const double share = cells_[cell].fill();
      fill->mean += share;
      fill->fullest = std::max(fill->fullest, share);
      fill->emptiest = std::min(fill->emptiest, share);
    }
    fill->mean /= static_cast<double>(alive);
  }

  void Check() {
    for (const Router& router : routers_) {
      const absl::Status status = router.core->CheckInvariants();
      if (!status.ok()) result_.violation = std::string(status.message());
    }
  }

  const RouterCellsOptions options_;
  Random random_;
  const TimeUs delay_us_;
  TimeUs now_us_ = 0;
  TimeUs start_us_ = 0;
  TimeUs end_us_ = 0;  // of arrivals
  double next_arrival_s_ = 0;
  uint64_t numbers_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::vector<ModelCell> cells_;
  std::vector<Router> routers_;
  bool lost_ = false;  // kLostCell
  int64_t open_ = 0;   // requests that have not ended for their clients
  RouterCellsResult result_;
};

}  // namespace

RouterCellsResult SimulateRouterCells(const RouterCellsOptions& options) {
  RouterCellsResult result = RouterCellsWorld(options).Run();
  if (options.lost_s < 0) result.before = result.after;
  return result;
}

}  // namespace skein::scheduler
