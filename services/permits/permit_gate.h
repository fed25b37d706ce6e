// PermitGate: whether a caller at a decode-worker may do what it asks about a handoff. A writer
// shows the permit (permit.h) that the orchestrator signed for it when it opens its transfer, and
// again with each further call of that transfer. So whoever knows only the request's id can do
// nothing to its transfers.
//
// The orchestrator's welcome brings the key (TakeKey). The keys of former orchestrators stay valid
// for kFormerKeyS, so that the handoffs that they permitted go on. An orchestrator of an older
// build has no key: then no permit is asked for.
//
// Whether a permit has expired is judged by the clock of the orchestrator that signed it. That
// clock is estimated from the times of issue in its permits. The estimate is never ahead of the
// clock, so no permit is refused because the clocks of two hosts differ; the first permit of a key
// always counts as fresh.
//
// A permit is bound to the address (without the port) that showed it first, until it expires. After
// its writer's Commit or Abort it opens nothing more.
//
// A call without a permit may come from a prefill-worker of an older build, so it is not refused
// here: `unpermitted` is set in the request, and the core, which knows what was announced, decides.
//
// Thread-safe. A call costs O(log transfers) under a lock; the first call that shows a permit also
// verifies its signature, outside of the lock.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "services/permits/permit.h"

namespace skein::services {

// The metadata of a call under which a writer shows its permit again.
inline constexpr char kPermitMetadata[] = "skein-permit-bin";

// The address of gRPC's `peer` ("ipv4:10.0.0.1:4242") without its port; all of this machine's
// loopback addresses are "local".
std::string HostOfPeer(std::string_view peer);

class PermitGate {
 public:
  static constexpr int64_t kFormerKeyS = 3600;

  enum class Refusal {
    kMissing,
    kForged,
    kExpired,
    kReplayed,
    kOtherRequest,
    kOtherWriter,
    kOtherWorker,
    kNewerKey,  // of an orchestrator that has not welcomed this worker yet; UNAVAILABLE, so the
                // writer asks again
  };
  static constexpr size_t kRefusals = 8;
  static std::string_view NameOf(Refusal why);  // as the metric's label

  // What a call shows.
  struct Shown {
    std::string permit;  // may be empty
    std::string from;    // HostOfPeer
  };

  explicit PermitGate(std::function<int64_t()> now_s = nullptr);  // null: the steady clock's

  // This decode-worker's process. Before the first call.
  void SetProcess(scheduler::Incarnation process) { process_ = process; }
  // From an orchestrator's welcome. `public_key`: empty if it signs none. INVALID_ARGUMENT: it is
  // no key.
  absl::Status TakeKey(uint64_t generation, const std::string& public_key);

  // PERMISSION_DENIED names what is wrong. OK: the caller is the writer that it says it is, or no
  // permit is asked for, or `unpermitted` was set.
  absl::Status Open(scheduler::OpenTransferRequest* request, const Shown& shown);
  absl::Status Abort(scheduler::AbortRequest* request, const Shown& shown);
  // Renew, staging buffers, parts and Commit.
  template <class Request>
  absl::Status GoOn(const Request& request, const Shown& shown) {
    return GoOn({request.id, request.epoch, request.prefill}, shown, /*ends=*/false);
  }
  absl::Status GoOn(const scheduler::CommitRequest& request, const Shown& shown) {
    return GoOn({request.id, request.epoch, request.prefill}, shown, /*ends=*/true);
  }
  // Counts a call that the core refused because it was `unpermitted`.
  void CountMissing();

  std::array<uint64_t, kRefusals> Refused() const;  // by Refusal
  size_t remembered() const;                        // permits

 private:
  using Transfer = std::tuple<scheduler::RequestId, scheduler::Epoch, scheduler::InstanceId>;
  struct Key {
    std::shared_ptr<EVP_PKEY> key;
    int64_t until_s = INT64_MAX;
    int64_t ahead_s = INT64_MIN;  // its owner's clock minus this process's, at least
  };
  struct Used {
    std::string permit;
    std::string from;
    scheduler::Incarnation writer;
    Transfer transfer;
    bool spent = false;
  };

  absl::Status Refuse(Refusal why, const std::string& text);
  absl::Status Verify(const std::string& bytes, scheduler::RequestId id, scheduler::Epoch epoch,
                      scheduler::Incarnation writer, Permit* out);
  bool HasExpired(const Permit& permit);
  // The first call of a transfer, which brings the permit.
  template <class Request>
  absl::Status Begin(Request* request, const Shown& shown, bool ends);
  absl::Status Use(const Permit& permit, const Shown& shown, const Transfer& transfer, bool ends);
  absl::Status GoOn(const Transfer& transfer, const Shown& shown, bool ends);
  const Used* UsedOf(const Transfer& transfer) const;  // REQUIRES: mutex_ held
  bool AsksForPermits() const;
  void ForgetExpired(int64_t now_s);  // REQUIRES: mutex_ held

  const std::function<int64_t()> now_s_;
  scheduler::Incarnation process_;
  mutable std::mutex mutex_;
  // Guarded by it.
  bool asks_ = false;
  uint64_t newest_generation_ = 0;
  std::map<uint64_t, Key> keys_;                     // by PermitKeyId
  std::map<uint64_t, Used> used_;                    // by nonce
  std::map<Transfer, uint64_t> open_;                // the nonce of the permit that opened it
  std::set<std::pair<int64_t, uint64_t>> expiring_;  // of used_: time here, and nonce
  std::array<uint64_t, kRefusals> refused_{};
};

}  // namespace skein::services
