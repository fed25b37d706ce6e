#include "services/orchestrator/retuner.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/policy.h"
#include "services/log/log.h"

namespace skein::services {
namespace {

using scheduler::ImprovementRateTable;
using JsonValue = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// A router names the model; more names than any cluster serves are not followed.
constexpr size_t kModelsMax = 256;

// Of the calling thread. It may fail where the host forbids it; then the thread is an ordinary one.
void LowerPriority() {
  constexpr int kLowest = 19;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowest);
}

double UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

prometheus::Counter& Retunes(RetuneOutcome outcome, Metrics* metrics) {
  return metrics->Counter("skein_retunes_total",
                          "Times that the improvement rates of a model were to be tuned, by "
                          "outcome.",
                          {{"outcome", NameOf(outcome)}});
}

bool IsDone(RetuneOutcome outcome) {
  return outcome == RetuneOutcome::kApplied || outcome == RetuneOutcome::kUnchanged;
}

}  // namespace

const char* NameOf(RetuneOutcome outcome) {
  switch (outcome) {
    case RetuneOutcome::kApplied:
      return "applied";
    case RetuneOutcome::kUnchanged:
      return "unchanged";
    case RetuneOutcome::kTooFewPrompts:
      return "too_few_prompts";
    case RetuneOutcome::kNoInstances:
      return "no_instances";
    case RetuneOutcome::kReloaded:
      return "reloaded";
  }
  return "";
}

std::string WhyNotRetuned(const OrchestratorOptions& options) {
  if (options.profile.empty()) return "without --profile nothing is planned by improvement rates";
  if (options.retune_hours == 0) return "--retune-hours is 0";
  if (options.policy != "tetris" && options.policy != "single") {
    return absl::StrCat("--policy ", options.policy, " does not use improvement rates");
  }
  if (options.improvement_rate != "auto") {
    return absl::StrCat("--improvement-rate is ", options.improvement_rate, ", not auto");
  }
  return "";
}

Retuner::Retuner(std::chrono::duration<double> every, std::string why_not,
                 std::shared_ptr<const scheduler::PlanningConfig> planning, Hooks hooks,
                 Metrics* metrics)
    : every_(every),
      why_not_(std::move(why_not)),
      planning_(std::move(planning)),
      hooks_(std::move(hooks)),
      metrics_(metrics) {
  if (planning_ != nullptr) tables_ = planning_->tables;
  for (int i = 0; i < kRetuneOutcomes; ++i) Retunes(static_cast<RetuneOutcome>(i), metrics_);
}

Retuner::~Retuner() { Stop(); }

void Retuner::Start() {
  if (planning_ == nullptr || !why_not_.empty()) return;
  thread_ = std::thread([this] { Run(); });
}

void Retuner::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Retuner::Run() {
  LowerPriority();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (stop_.wait_for(lock, every_, [this] { return stopping_; })) return;
    }
    TuneAll();
  }
}

bool Retuner::stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

Retuner::Model* Retuner::Find(const std::string& model) {
  const auto known = models_.find(model);
  if (known != models_.end()) return &known->second;
  if (models_.size() >= kModelsMax) return nullptr;
  Model& added = models_[model];
  added.tables = tables_;
  return &added;
}

void Retuner::Saw(const std::string& model, int64_t prompt_tokens, int64_t now_us) {
  if (planning_ == nullptr) return;
  std::lock_guard lock(mutex_);
  Model* const found = Find(model);
  if (found == nullptr) return;
  found->history.OnArrival(prompt_tokens, now_us);
  if (found->later.has_value()) found->later->OnArrival(prompt_tokens, now_us);
}

void Retuner::Reloaded(const scheduler::PlanningTables& tables) {
  std::lock_guard lock(mutex_);
  ++reloads_;
  tables_ = tables;
  for (auto& [name, model] : models_) model.tables = tables;
  hooks_.apply("", tables);
}

void Retuner::TuneAll() {
  if (planning_ == nullptr || !why_not_.empty()) return;
  const std::map<std::string, int64_t> instances = hooks_.instances();
  std::vector<std::string> names;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, model] : models_) names.push_back(name);
  }
  for (const std::string& name : names) {
    const auto found = instances.find(name);
    Tune(name, found == instances.end() ? 0 : found->second);
  }
}

void Retuner::Tune(const std::string& name, int64_t instances) {
  const Clock::time_point begin = Clock::now();
  scheduler::PromptHistory history;
  uint64_t reloads = 0;
  {
    std::lock_guard lock(mutex_);
    Model& model = models_.at(name);
    history = model.history;
    model.later.emplace();
    reloads = reloads_;
  }
  Tuned tuned{.prompts = history.prompts(), .instances = instances};
  std::string reason;
  absl::StatusOr<ImprovementRateTable> rates = absl::FailedPreconditionError("");
  if (instances < planning_->latency.sp_sizes().front()) {
    tuned.outcome = RetuneOutcome::kNoInstances;
    reason = "it has no prefill instances";
  } else {
    const scheduler::Cluster cluster{static_cast<int>(instances), planning_->node_size};
    rates = hooks_.tune(history, planning_->latency, cluster, [this] { return stopping(); });
    if (absl::IsCancelled(rates.status())) return;
    if (!rates.ok()) {
      tuned.outcome = RetuneOutcome::kTooFewPrompts;
      reason = std::string(rates.status().message());
    }
  }
  tuned.at_unix_s = UnixSeconds();
  tuned.took_s = std::chrono::duration<double>(Clock::now() - begin).count();
  Finish(name, reloads, rates, &tuned);
  if (tuned.outcome == RetuneOutcome::kReloaded) reason = "the tables were read anew meanwhile";
  const bool done = IsDone(tuned.outcome);
  LogInfo(
      done ? "improvement rates tuned" : "improvement rates not tuned",
      {{"model", name},
       {"outcome", NameOf(tuned.outcome)},
       {"reason", reason},
       {"prompts", tuned.prompts},
       {"instances", tuned.instances},
       {"improvement_rate_rows", done ? static_cast<int64_t>(rates->rows().size()) : int64_t{0}},
       {"largest_change", tuned.largest_change},
       {"tuning_s", tuned.took_s}});
}

void Retuner::Finish(const std::string& name, uint64_t reloads,
                     const absl::StatusOr<ImprovementRateTable>& rates, Tuned* tuned) {
  std::lock_guard lock(mutex_);
  Model& model = models_.at(name);
  ImprovementRateTable& present = model.tables.improvement_rates;
  if (rates.ok() && reloads != reloads_) {
    tuned->outcome = RetuneOutcome::kReloaded;
  } else if (rates.ok()) {
    tuned->largest_change = scheduler::LargestChange(present, *rates);
    tuned->outcome =
        tuned->largest_change > 0 ? RetuneOutcome::kApplied : RetuneOutcome::kUnchanged;
    present = *rates;
    model.history = *std::exchange(model.later, std::nullopt);
  }
  model.later.reset();
  model.tuned = *tuned;
  Retunes(tuned->outcome, metrics_).Increment();
  if (tuned->outcome == RetuneOutcome::kApplied) hooks_.apply(name, model.tables);
}

std::string Retuner::Json() const {
  JsonValue json;
  json["policy"] = planning_ == nullptr ? JsonValue() : JsonValue(planning_->policy.name);
  json["every_hours"] = every_.count() / 3600;
  json["why_not"] = why_not_.empty() ? JsonValue() : JsonValue(why_not_);
  JsonValue& models = json["models"] = JsonValue::array();
  std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) {
    JsonValue one;
    one["model"] = name;
    one["prompts"] = model.history.prompts();
    JsonValue& rates = one["rates"] = JsonValue::array();
    for (const ImprovementRateTable::Row& row : model.tables.improvement_rates.rows()) {
      rates.push_back(
          {{"requests_per_s", row.requests_per_s}, {"improvement_rate", row.improvement_rate}});
    }
    one["tuned"] = JsonValue();
    if (model.tuned.has_value()) {
      one["tuned"] = {{"at_unix_s", model.tuned->at_unix_s},
                      {"outcome", NameOf(model.tuned->outcome)},
                      {"prompts", model.tuned->prompts},
                      {"instances", model.tuned->instances},
                      {"largest_change", model.tuned->largest_change},
                      {"took_s", model.tuned->took_s}};
    }
    models.push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, JsonValue::error_handler_t::replace);
}

void Retuner::Refresh(const std::vector<std::string>& models) {
  std::lock_guard lock(mutex_);
  for (const std::string& name : models) {
    const auto found = models_.find(name);
    const bool tuned = found != models_.end() && found->second.tuned.has_value();
    const Tuned last = tuned ? *found->second.tuned : Tuned{};
    const auto gauge = [&](const char* metric, const char* help, double value) {
      metrics_->Gauge(metric, help, {{"model_name", name}}).Set(value);
    };
    gauge("skein_retune_time_seconds",
          "Unix time at which the improvement rates were last to be tuned; 0: never.",
          last.at_unix_s);
    gauge("skein_retune_prompts", "Prompts from which they were then to be tuned.",
          static_cast<double>(last.prompts));
    gauge("skein_retune_rate_change",
          "The largest change of an improvement rate in the table, at that time.",
          last.largest_change);
  }
}

}  // namespace skein::services
