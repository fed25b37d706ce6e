// Transport: one-sided movement of bytes between registered memory of two processes (the KV
// handoff).
//
// Life: Register -> Describe -> (the string travels over gRPC) -> Connect -> Post -> Poll ... ->
// Disconnect -> Unregister.
//
// Threads. Every method may be called from any thread (one internal fair lock), except Poll: one
// thread at a time, the *progress thread*. No method blocks on the network; Poll alone may sleep,
// at most for its `wait`. OpenGrant and CloseGrant do not wait for a Poll that moves bytes. The
// TARGET of a transfer must poll too: where the wire has no remote writes (tcp), its Poll applies
// them. A process that has described a region therefore keeps a progress thread in Poll(…, wait =
// e.g. 100 ms) for as long as peers may know the description; the thread sleeps in the kernel while
// nothing arrives.
//
// Memory. A region's bytes belong to the caller, or to the transport if it allocated them (Register
// with null), and live from Register to Unregister. The local bytes of a transfer may be reused
// once its completion was polled, whatever its status. On any status but OK the remote bytes of a
// put (the local bytes of a get) are undefined, and those of a put may still change while what is
// in the wire drains into the target's Poll.
//
// Grants. A target that gives its memory to one writer after the other numbers what it gives: it
// opens a grant, sends its description under that number (description.h, DescribeUnder), and closes
// the grant before it gives the same bytes to another. When TakeClosed returns the grant, no put
// under it changes a byte any more, however late its source is. Neither a check at the commit
// (bytes may land after it) nor a wait of any length (a source may be stopped for longer) would do.
//  - Where the target applies the bytes (messages), each message names its grant, and those of a
//    closed one are dropped. The grant is closed at once.
//  - Where the source writes by itself (mapped memory, memory of a device that it opened, RMA), it
//    first asks the target, which knows from then on that this process may write under the grant,
//    and watches the process. Closing withdraws the permission; the grant is closed when the source
//    has acknowledged, with nothing of it under way, or has ended. A source that stands still keeps
//    the bytes from others until it goes on or is killed: the cost of writing without the target's
//    CPU. (Memory that is remapped under a writer, or KV that is staged, would cost each put a copy
//    or each handoff a change of page tables, in order to spare blocks of the rare stopped writer.)
// Puts under no grant are always applied: for memory that has one writer as long as it lives.
//
// Visibility. OK for a put means that the target's CPU (in memory of a device: that device's next
// kernel) reads the new bytes, even if it learns of the put over another channel: the commit
// message may be sent as soon as the completion was polled.
//
// Bounds. Every transfer ends, by its timeout at the latest plus the time of one Poll. A peer found
// dead or stalled is *broken*: its transfers end with UNAVAILABLE (or DEADLINE_EXCEEDED), Post to
// it answers UNAVAILABLE, and the way back is Connect with the description of its new incarnation
// (or with the old one, if the process only stalled).
//
// A description comes from a member of the cluster: damage, truncation and impossible numbers are
// INVALID_ARGUMENT, but a member that forges a key can make its peers write to memory of its own
// choosing in its own process only, or, of memory of devices, in one that let it open that memory.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/vocabulary/grant_id.h"

namespace skein::engine {

// Ids are never reused within one transport's life. A RegionId is meaningful to the transport that
// gave it and, through a description, to its peers.
struct RegionId {
  uint64_t value = 0;
  auto operator<=>(const RegionId&) const = default;
};
struct PeerId {
  uint64_t value = 0;
  auto operator<=>(const PeerId&) const = default;
};
struct TransferId {
  uint64_t value = 0;
  auto operator<=>(const TransferId&) const = default;
};

using skein::GrantId;  // numbered by the target

struct Region {
  RegionId id;
  std::byte* base = nullptr;
  size_t bytes = 0;
};

// A connected peer and the regions of the description it was connected with, in that description's
// order.
struct Peer {
  PeerId id;
  std::vector<RegionId> regions;
  GrantId grant;  // under which the description permits puts
};

enum class TransferOp { kPut, kGet };

// `bytes` bytes at `local_offset` of a local region <-> `remote_offset` of a region of the peer.
struct TransferPiece {
  RegionId local;
  uint64_t local_offset = 0;
  RegionId remote;
  uint64_t remote_offset = 0;
  uint64_t bytes = 0;
};

// The end of a transfer; exactly one for every TransferId that Post returned.
//   OK                 all bytes moved (a put: visible to the target)
//   CANCELLED          Cancel came first
//   DEADLINE_EXCEEDED  the timeout of Post passed
//   UNAVAILABLE        the peer is dead, was disconnected, or was found broken
//   FAILED_PRECONDITION  the target has closed the grant; nothing is wrong with the peer
struct TransferCompletion {
  TransferId id;
  absl::Status status;
  uint64_t bytes = 0;  // handed to the wire; all of them if OK
};

// What is known of a peer; counters only grow.
struct PeerInfo {
  std::string transport;  // what carries the bytes, such as "mapped+ring", "tcp", "cuda-ipc",
                          // "loopback", for people; "" before the first transfer
  std::string path;       // "direct": directly between the memories; "host-staged": through staging
                          // memory, for a device that the transport cannot reach; "" as above
  std::string why_not_faster;  // why nothing before it; "": nothing is faster, or as above
  bool broken = false;
  uint64_t put_bytes = 0;  // of transfers that ended OK
  uint64_t get_bytes = 0;
  double busy_seconds = 0;  // time during which at least one transfer of this peer was under way
};

class Transport {
 public:
  virtual ~Transport() = default;  // bounded: breaks off what is under way, never waits for a peer

  // Makes [base, base + bytes) usable in transfers. `base` null: the transport allocates `bytes`
  // zeroed bytes of the kind that peers on this host reach fastest (shared memory); Unregister
  // frees them. Registering a range twice gives two ids. INVALID_ARGUMENT for zero bytes or a range
  // that wraps; RESOURCE_EXHAUSTED when memory or the region limit is used up.
  virtual absl::StatusOr<Region> Register(void* base, size_t bytes) = 0;

  // FAILED_PRECONDITION while a local transfer uses it; NOT_FOUND for an unknown id. The caller
  // first makes sure that no peer still writes to it.
  virtual absl::Status Unregister(RegionId region) = 0;

  // An opaque, versioned, checksummed string with which peers Connect: this worker's address and
  // incarnation, and the place, length and key of each region. NOT_FOUND for an unknown id;
  // INVALID_ARGUMENT for more than 1024 regions.
  virtual absl::StatusOr<std::string> Describe(std::span<const RegionId> regions) = 0;

  // The peer of a description. A second description of the same worker and incarnation gives the
  // same PeerId and adds its regions. Returns at once; reachability shows in the first transfer.
  // INVALID_ARGUMENT for a malformed description or one of another kind of transport;
  // RESOURCE_EXHAUSTED at the peer limit, or while this process has no descriptors or memory left.
  virtual absl::StatusOr<Peer> Connect(std::string_view description) = 0;

  // Forgets a peer; its transfers end with UNAVAILABLE. Bounded, also if the peer is dead: with
  // UCX's RMA and puts under way to a peer that stands still it takes up to 1.5 s, for which all
  // other calls and peers wait. NOT_FOUND for an unknown id.
  virtual absl::Status Disconnect(PeerId peer) = 0;

  // Queues a transfer of `pieces`, whose remote places must not overlap (puts; a get: local ones).
  // Copies the list, merges neighbours that touch on both sides, moves nothing itself: Poll does.
  // No pieces is a transfer that completes. INVALID_ARGUMENT names the first piece that leaves its
  // local or remote region; NOT_FOUND an unknown peer or region; UNAVAILABLE a broken peer;
  // RESOURCE_EXHAUSTED too many transfers or pieces queued (back off, Poll). On error nothing was
  // queued. `timeout` counts from now. A put is made under `grant`, which a get ignores.
  virtual absl::StatusOr<TransferId> PostUnder(GrantId grant, PeerId peer, TransferOp op,
                                               std::span<const TransferPiece> pieces,
                                               std::chrono::nanoseconds timeout) = 0;
  // Under no grant.
  absl::StatusOr<TransferId> Post(PeerId peer, TransferOp op, std::span<const TransferPiece> pieces,
                                  std::chrono::nanoseconds timeout) {
    return PostUnder(GrantId{}, peer, op, pieces, timeout);
  }

  // Gives a transfer up: no further piece is issued and it ends CANCELLED (or as it had ended
  // already). Pieces on the wire are awaited; if they do not finish within the timeout of Post the
  // peer is broken. Unknown ids are ignored.
  virtual void Cancel(TransferId transfer) = 0;

  // Drives progress and appends at most `max` completions to `out`, in the order in which they
  // ended; returns how many. Returns as soon as there is one; otherwise after `wait` (0: never
  // sleeps) or a Wake.
  virtual size_t Poll(size_t max, std::chrono::nanoseconds wait,
                      std::vector<TransferCompletion>* out) = 0;

  // For targets. Puts under `grant` are applied from now on. Open grants stay as they are.
  virtual void OpenGrant(GrantId grant) = 0;
  // TakeClosed returns `grant` once, when no put under it changes anything any more. Also one that
  // is not open.
  virtual void CloseGrant(GrantId grant) = 0;
  // Grants that were closed since the last call, in no order. Poll drives this, and returns early
  // as long as there is one to take.
  virtual std::vector<GrantId> TakeClosed() = 0;

  // Makes the Poll that sleeps now, or else the next one, return early.
  virtual void Wake() = 0;

  // NOT_FOUND for an unknown peer.
  virtual absl::StatusOr<PeerInfo> Inspect(PeerId peer) = 0;
};

}  // namespace skein::engine
