// UcxPlane: a process's one context and one worker of UCX, with one endpoint for each peer, under
// handoff (engine/transport) and collectives (engine/comm). Internal to them.
//
// Both are its users, each with threads and a lock of its own, which it takes before the plane's.
// Progress by either user moves both users' messages. Messages for the other user are queued for
// it; if it sleeps, its descriptor becomes readable. So a user's callbacks come from its own calls
// alone.
//
// A peer's endpoint stays for later uses until the peer is lost. A lost one is forgotten when no
// user has it any more; whoever connects meanwhile gets another endpoint.
//
// Bounds. Each user's queue holds kKeptBytesMax. When it is full, Progress moves nothing for either
// user until the queue's owner calls Progress; senders wait meanwhile. An owner that makes no call
// is told long before (OnKept). We prefer this to unbounded memory, and to dropping messages, which
// would break a transfer or a group. Messages left under way (TakeOver) to a peer that lives and
// takes nothing: beyond kLeftBytesMax nobody connects to it until it has taken some. So a peer
// costs at most that, and what the connections leave that are open by then.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ucx/ucx_context.h"
#include "engine/ucx/ucx_options.h"

struct ucp_ep;
struct ucp_rkey;

namespace skein::engine {

// The longest message that UCX carries in one piece, UCX's own header included.
inline constexpr size_t kUcxSegmentBytes = 64 << 10;

// A user's message goes to the same user of the peer's plane; one that nobody uses there is
// dropped.
enum class PlaneUse : unsigned { kTransport = 1, kComm = 2 };

class PlaneUser {
 public:
  // From within Progress of this user.
  virtual void OnMessage(std::span<const std::byte> message) = 0;
  // An operation that was left under way has ended.
  virtual void OnSent(void* cookie, bool ok) = 0;
  // A quarter of kKeptBytesMax is kept for it now: it should call Progress soon. From within
  // Progress of another user, with the plane's lock held. So it must not call the plane, nor wait
  // for anything under which it does.
  virtual void OnKept() = 0;

 protected:
  ~PlaneUser() = default;
};

struct PlanePeer;
struct PlaneOperation;

class UcxPlane {
 public:
  static constexpr size_t kPartsMax = 18;
  static constexpr size_t kKeptBytesMax = 64 << 20;  // for one user
  static constexpr size_t kLeftBytesMax = 16 << 20;  // to one peer
  enum class How { kDone, kFailed, kUnderWay };
  struct Started {
    How how = How::kDone;
    PlaneOperation* operation = nullptr;  // under way
  };

  // UNAVAILABLE or INVALID_ARGUMENT if UCX cannot start with these options.
  static absl::StatusOr<std::shared_ptr<UcxPlane>> Make(const UcxOptions& options);
  // Waits, but not for long, until what was sent has left. REQUIRES: no users.
  ~UcxPlane();
  UcxPlane(const UcxPlane&) = delete;

  const std::string& address() const { return context_.worker_address; }
  // UCX reaches other hosts from here.
  bool fabric() const { return context_.fabric; }
  ucp_context* context() const { return context_.context; }

  // Returns a descriptor that is readable when the user was rung. One user for each use.
  int Attach(PlaneUse use, PlaneUser* user);
  // REQUIRES: it has released its peers. Nothing is called back any more.
  void Detach(PlaneUser* user);

  // An endpoint, to be given back by Release. UNAVAILABLE: it cannot be reached, or does not take
  // what was sent before (Bounds).
  absl::StatusOr<PlanePeer*> Connect(const std::string& worker_address);
  void Release(PlanePeer* peer);
  // Whether UCX has lost it, or Cut was called.
  bool IsLost(const PlanePeer* peer);
  uint64_t losses() const { return losses_.load(std::memory_order_acquire); }  // so far
  // Closes its endpoint for all users by force, without a wait: what is under way ends with an
  // error. True when nothing comes or goes through it any longer.
  bool Cut(PlanePeer* peer);
  const std::string& AddressOf(const PlanePeer* peer);  // that was connected to
  // As ucp_ep_print_info tells; "" of one that was cut.
  std::string InfoOf(const PlanePeer* peer);
  size_t peers();

  // Sends a message. What is left under way reads the parts until OnSent(cookie), or TakeOver.
  Started Send(PlaneUser* user, PlanePeer* peer, std::span<const std::span<const std::byte>> parts,
               void* cookie);
  // As ucp_put_nbx and ucp_ep_flush_nbx. `key` is of this peer. A Send or a Flush that fails loses
  // the peer; a Put does not where this process lacks memory for it.
  Started Put(PlaneUser* user, PlanePeer* peer, std::span<const std::byte> local, uint64_t remote,
              ucp_rkey* key, void* cookie);
  Started Flush(PlaneUser* user, PlanePeer* peer, void* cookie);
  // From now on a message under way reads memory of the plane, and OnSent gets this cookie; null:
  // it does not come. (Of a Put the latter only: UCX reads its memory until it has ended.)
  void TakeOver(PlaneOperation* operation, void* cookie);

  // Delivers what was kept for the user, then lets UCX move at most so much. Returns how much
  // moved. No callback comes within another one.
  int Progress(PlaneUser* user, int most);
  // To be called before a sleep on fd() and the user's own descriptor. False: there is something to
  // do: messages, or (once) a peer that was lost since the last Arm. Until Awake the user is rung
  // when another one takes what is for it.
  bool Arm(PlaneUser* user);
  void Awake(PlaneUser* user);
  int fd() const { return event_fd_; }

  // For other calls of UCX with this context, worker or an endpoint of it.
  using Lock = std::unique_lock<std::recursive_mutex>;
  Lock Hold() { return Lock(mutex_); }
  // REQUIRES: Hold. Null of one that was cut.
  static ucp_ep* EndpointOf(const PlanePeer* peer);

 private:
  struct Attached {
    UcxPlane* plane = nullptr;
    PlaneUser* user = nullptr;
    int rung_fd = -1;
    bool asleep = false;
    bool lost_one = false;                        // a peer was lost since its last Arm
    std::deque<std::vector<std::byte>> messages;  // kept, as what has ended
    size_t kept_bytes = 0;                        // of these
    std::list<PlaneOperation> ended;
  };
  struct Callbacks;  // UCX's

  explicit UcxPlane(UcxContext context);
  Attached& Of(PlaneUser* user);
  PlaneOperation* NewOperation(PlaneUser* user, PlanePeer* peer, void* cookie);
  Started Launched(PlaneOperation* operation, void* request);
  void Ended(PlaneOperation* operation, bool ok);
  void Arrived(Attached* to, std::span<const std::byte> message);
  int Deliver(Attached* to);
  bool AnotherIsFull(const PlaneUser* user) const;
  void Ring(Attached* user);
  void Lost(PlanePeer* peer);
  void ForgetLost();
  bool UnderWay() const;

  const UcxContext context_;
  int event_fd_ = -1;
  std::atomic<uint64_t> losses_{0};

  std::recursive_mutex mutex_;  // guards UCX and all below; callbacks of UCX come with it held
  uint64_t datatype_ = 0;
  std::array<Attached, 3> users_;                            // by PlaneUse
  PlaneUser* progressing_ = nullptr;                         // gets what comes at once
  std::map<std::string, std::unique_ptr<PlanePeer>> peers_;  // by worker address
  std::list<std::unique_ptr<PlanePeer>> lost_;               // whose places others have
  std::list<PlaneOperation> spare_;
};

}  // namespace skein::engine
