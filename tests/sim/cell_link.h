// Which of the cell's orchestrators a simulated worker or router calls: chosen as WorkerLink and
// RouterLink do.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "tests/sim/orchestrator_process.h"

namespace skein::sim {

class CellLink {
 public:
  // At each start of its process, which outlives it.
  void Start(const Process* process, const Scenario& scenario) {
    process_ = process;
    time_scale_ = scenario.time_scale;
    std::string all = OrchestratorEndpoint(0);
    for (int i = 1; i < scenario.orchestrators; ++i) {
      absl::StrAppend(&all, "+", OrchestratorEndpoint(i));
    }
    orchestrators_.emplace(all);
  }

  void BeginRound() { orchestrators_->BeginRound(); }
  // The one to call now.
  const std::string& Ask() { return asked_ = orchestrators_->Current(); }
  const std::string& asked() const { return asked_; }
  // The call or stream ended; `welcomed`: its orchestrator had answered on it. True: another one is
  // to be called in this round.
  bool Ended(const absl::Status& why, bool welcomed) {
    return orchestrators_->Failed(asked_, why, ProductUs(), welcomed);
  }
  void WasSilent() {
    orchestrators_->Failed(asked_, services::CellOrchestrators::Failure::kSilent, "", ProductUs());
  }

 private:
  // CellOrchestrators' pauses are the product's.
  int64_t ProductUs() const { return process_->LocalNow() * 10 / time_scale_; }

  const Process* process_ = nullptr;
  int64_t time_scale_ = 1;
  std::optional<services::CellOrchestrators> orchestrators_;
  std::string asked_;
};

}  // namespace skein::sim
