// Retuner: tunes the improvement rates again from the prompts that this orchestrator saw (Tetris,
// section 5.1), every --retune-hours, on a thread of its own with the lowest priority. Each model
// has a table of its own; in each cell the orchestrator tunes for its own instances.
//
// The simulation runs beside the core, on a copy of what was seen; the core gets the table as an
// event and plans with it from its next plan on. What was seen is kept in memory only: a restarted
// orchestrator begins with the profile's table.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/orchestrator/prefill/pool_planner.h"
#include "scheduler/simulator/prompt_history.h"
#include "scheduler/simulator/retune.h"
#include "services/metrics/metrics.h"
#include "services/orchestrator/options.h"

namespace skein::services {

// Why these options leave the tables as they are; "": they do not.
std::string WhyNotRetuned(const OrchestratorOptions& options);

enum class RetuneOutcome {
  kApplied,
  kUnchanged,
  kTooFewPrompts,
  kNoInstances,
  kReloaded,  // the tables were read anew meanwhile: those count
};
inline constexpr int kRetuneOutcomes = 5;
const char* NameOf(RetuneOutcome outcome);  // as metrics, logs and the page write it

class Retuner {
 public:
  struct Hooks {
    // The prefill instances of each model that has any. On the thread that tunes.
    std::function<std::map<std::string, int64_t>()> instances;
    // Gives the core the tables of a model, or of all (""). Any thread, under this object's lock,
    // so that the core gets them in the order in which they count here; must not block.
    std::function<void(const std::string& model, const scheduler::PlanningTables&)> apply;
    // The simulation. On the thread that tunes, without this object's lock.
    std::function<decltype(scheduler::RetuneRates)> tune = scheduler::RetuneRates;
  };

  // `planning` is null where nothing is planned; then, or with a reason in `why_not`, this only
  // shows the tables. `metrics` outlives this.
  Retuner(std::chrono::duration<double> every, std::string why_not,
          std::shared_ptr<const scheduler::PlanningConfig> planning, Hooks hooks, Metrics* metrics);
  ~Retuner();

  // Begins the thread, unless there is a reason not to.
  void Start();
  // Returns when a simulation in progress has reached its next load.
  void Stop();

  // Any thread. A prompt came that prefill instances are to compute; `now_us` is MonotonicUs().
  void Saw(const std::string& model, int64_t prompt_tokens, int64_t now_us);
  // Any thread. The tables were read anew: all models get these until they are tuned again.
  void Reloaded(const scheduler::PlanningTables& tables);
  // Tunes each model that has prompts and instances, on the calling thread. One caller at a time.
  void TuneAll();

  // Any thread. The page /debug/planning: {"policy", "every_hours", "why_not" (null: it is tuned),
  // "models": [{"model", "prompts" (seen since it was last tuned), "rates": [{"requests_per_s",
  // "improvement_rate"}], "tuned": null or {"at_unix_s", "outcome", "prompts", "instances",
  // "largest_change", "took_s"}}]}.
  std::string Json() const;
  // Sets the gauges of these models.
  void Refresh(const std::vector<std::string>& models);

 private:
  struct Tuned {
    double at_unix_s = 0;
    RetuneOutcome outcome = RetuneOutcome::kApplied;
    int64_t prompts = 0;
    int64_t instances = 0;
    double largest_change = 0;
    double took_s = 0;
  };
  struct Model {
    scheduler::PromptHistory history;
    // While the model is tuned: what has come since this began. It takes the place of the history
    // that the new table was made from.
    std::optional<scheduler::PromptHistory> later;
    scheduler::PlanningTables tables;
    std::optional<Tuned> tuned;  // last
  };

  void Run();
  bool stopping() const;
  Model* Find(const std::string& model);  // null: there are too many; with the lock
  void Tune(const std::string& model, int64_t instances);
  // The simulation has ended: its table, if it made one, is applied, unless the tables were read
  // anew since there were `reloads`. Sets the rest of `tuned`.
  void Finish(const std::string& model, uint64_t reloads,
              const absl::StatusOr<scheduler::ImprovementRateTable>& rates, Tuned* tuned);

  const std::chrono::duration<double> every_;
  const std::string why_not_;
  const std::shared_ptr<const scheduler::PlanningConfig> planning_;
  const Hooks hooks_;
  Metrics* const metrics_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::map<std::string, Model> models_;
  scheduler::PlanningTables tables_;  // of models that were not seen yet
  uint64_t reloads_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::services
