// SharedWeights: has a decode-worker's engine share its feed-forward weights with other instances
// of its node (engine/model/sharing), as its core orders (scheduler::SharingEngine).
//
// To prepare, the members tell each other in which memory their layers are (their offers), each
// under the epoch. A member drops the offers that reach it before it prepares, and asks the others
// for theirs when it does; so the members may prepare in any order. All else an instance does by
// itself: it enters with the offers that it has, and reads from the others' memory, or calls their
// engines, without this class.
//
// The calls are carried out on a thread of its own, in their order. Each waits for the end of the
// step that runs, and the next step waits for the call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/sharing/weight_sharing.h"
#include "scheduler/worker/group/sharing_engine.h"
#include "services/shell/loop.h"

namespace skein::services {

class SharedWeights final : public scheduler::SharingEngine {
 public:
  struct Peers {
    // Opens the way to these members, in place of a former one, and returns this instance's rank
    // among them. Within Begin(PrepareShared).
    std::function<absl::StatusOr<int>(const scheduler::SharingMembers&)> open;
    // Sends to that rank of the members, if the way to them is still open. Any thread.
    std::function<void(int rank, std::string message)> send;
    // The answer to a call. On this class's thread; it may not wait for it.
    std::function<void(const scheduler::SharingDone&)> done;
  };

  // The engine that has `sharing` outlives this, or Stop.
  SharedWeights(std::shared_ptr<engine::WeightSharing> sharing, Peers peers);
  ~SharedWeights() override { Stop(); }
  // Waits for the call that is being carried out, and so for the step that runs. Idempotent.
  void Stop() { loop_.Stop(); }

  absl::Status CanShare() const override { return absl::OkStatus(); }
  engine::SharingTotals Totals() const { return sharing_->Totals(); }  // any thread
  void Begin(const scheduler::PrepareShared& call) override;
  void Begin(const scheduler::EnterShared& call) override;
  void Begin(const scheduler::ReadyMode& call) override;
  void Begin(const scheduler::SetMode& call) override;
  void Begin(const scheduler::LeaveShared& call) override;

  // What came from a rank of the members; any thread.
  void Arrived(int rank, const std::string& message);
  // That rank's process has ended; any thread.
  void Lost(int rank, const absl::Status& why);

 private:
  // The members that prepare, or have.
  struct Meeting {
    uint64_t call = 0;  // 0: it was answered
    uint64_t epoch = 0;
    int rank = 0;
    std::vector<std::optional<engine::SharingOffer>> offers;  // by rank
  };

  // On the loop.
  void Prepare(const scheduler::PrepareShared& call, const absl::StatusOr<int>& rank);
  absl::Status Enter(const scheduler::EnterShared& call);
  absl::Status Leave(const scheduler::LeaveShared& call);
  void Take(int rank, const std::string& message);
  void TellOffer(int rank, bool asks) const;
  void EndIfAllHaveOffered();
  void Answer(uint64_t call, const absl::Status& status) const { peers_.done({call, status}); }

  const std::shared_ptr<engine::WeightSharing> sharing_;
  const Peers peers_;
  uint64_t orders_ = 0;  // to sharing_, which wants them numbered
  std::optional<Meeting> meeting_;
  Loop loop_;
};

}  // namespace skein::services
