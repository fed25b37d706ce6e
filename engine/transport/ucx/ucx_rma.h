// One-sided puts of a UcxWire by UCX's RMA: ucp_put with remote keys. Internal to
// engine/transport/ucx.
//
// Where. A peer whose memory this process maps by itself needs none of it. Of the others, memory
// is written by ucp_put where that is truly remote: where UCX has mapped the region here (its own
// shared memory), or has a lane of reliable connections (rc_*: InfiniBand, RoCE). Never elsewhere:
// UCX emulates it there, and its emulation ends the TARGET's process when the source dies
// (rma_sw.c). Nor over dc, whose target has no queue pair of its own for each source, so that it
// cannot shut one out. Gets are messages: one that is given up must write nothing here any more.
//
// Grants (transport.h). A source asks before it puts, as for mapped memory. It acknowledges that
// permission was withdrawn when a flush says that its puts are in the target's memory, or never
// will be. Until then, or until it is known that it cannot write any more, the target keeps the
// bytes from others: until the source's process has ended (one of this host), or until the target
// has cut the source's process off (UcxPlane::Cut) and with it the queue pair through which the
// puts come (another host). The cost: one message each way at the first put of a grant, which
// Connect sends ahead; and the blocks of a source that stands still are of no use until it goes on,
// is killed, or is lost to UCX's keepalive.
//
// A cut is of the whole process: its collectives over UCX break with it, at both ends, and its
// later connections start anew. The source cuts its target, too, where it closes a connection
// whose puts UCX has not confirmed within a second. When UCX has ended them it says so over a new
// one (kBye, kCutOff), and the target cuts its end as well: then neither the source's processor nor
// a queue pair writes there any more.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/transport/wire.h"
#include "engine/ucx/ucx_plane.h"

namespace skein::engine {

struct Endpoint;
struct Operation;

struct DestroyRemoteKey {
  UcxPlane* plane = nullptr;  // outlives the key
  void operator()(ucp_rkey_h key) const {
    const UcxPlane::Lock lock = plane->Hold();
    ucp_rkey_destroy(key);
  }
};
using RemoteKey = std::unique_ptr<std::remove_pointer_t<ucp_rkey_h>, DestroyRemoteKey>;

// This process's memory, as UCX knows it.
class RmaMemory {
 public:
  // Null `base`: UCX allocates zeroed memory that peers on this host can map. Null: it cannot be
  // registered. `plane` outlives this.
  static std::unique_ptr<RmaMemory> Map(UcxPlane* plane, void* base, size_t bytes);
  ~RmaMemory() {
    const UcxPlane::Lock lock = plane_->Hold();
    ucp_mem_unmap(plane_->context(), memory_);
  }
  RmaMemory(const RmaMemory&) = delete;

  std::byte* base() const { return base_; }
  // For UnpackRemoteKey at the peers.
  const std::string& key() const { return key_; }

 private:
  RmaMemory(UcxPlane* plane, ucp_mem_h memory) : plane_(plane), memory_(memory) {}

  UcxPlane* const plane_;
  const ucp_mem_h memory_;
  std::byte* base_ = nullptr;
  std::string key_;
};

// The key to the region at `address` of the peer's process; null where puts would not be truly
// remote. The plane outlives it.
RemoteKey UnpackRemoteKey(UcxPlane* plane, PlanePeer* peer, std::string_view packed,
                          uint64_t address);

// Whether the text of ucp_ep_print_info shows a lane of reliable connections that can put.
bool HasReliableLane(const std::string& info);

// As Wire::Start of a put for one piece. REQUIRES: `key` is of this endpoint.
void PutByRma(Endpoint* endpoint, const WirePiece& piece, ucp_rkey_h key, WireTicket* ticket);

// Whether puts were started that no flush has confirmed.
bool RmaPending(const Endpoint& endpoint);

// Ends with the ticket, or with an acknowledgement of `grant` (0: of none), when all puts started
// before it are in the target's memory.
void FlushRma(Endpoint* endpoint, WireTicket* ticket, uint64_t grant);
// The end of such an operation.
void EndFlush(Operation* operation, bool ok);

}  // namespace skein::engine
