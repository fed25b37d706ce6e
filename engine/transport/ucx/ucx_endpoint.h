// The connections of a UcxWire and the messages on them. Internal to engine/transport.
//
// Memory that can be mapped is written by memcpy, memory that UCX writes truly remotely by ucp_put
// (ucx_rma.h), and the rest by messages of our own, whose failures come back to us and whose places
// the target checks against its regions and grants. Which way they take: UcxEndpoints::Open.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/host/host_wire.h"
#include "engine/host/process_watch.h"
#include "engine/host/shared_region.h"
#include "engine/net/tcp_wire.h"
#include "engine/transport/ucx/ucx_rma.h"
#include "engine/transport/wire.h"
#include "engine/ucx/ucx_address.h"

namespace skein::engine {

enum Message : unsigned {
  kHello = 1,
  kPut,
  kFlush,
  kGet,
  kAnswer,
  kBye,
  kAsk,
  kPermit,
  kWithdraw,
  kWithdrawn
};

// Every message's header; what a message does not use is zero.
//
// - kHello: connection. Data: the source's worker address.
// - kPut: connection, grant, count of fragments; the header is the base of a PutHeader.
// - kFlush: connection, id, grant, count. Answered when so many puts were applied.
// - kGet: connection, id, mapping, address, count of bytes.
// - kAnswer: connection, id, refused. Data: the bytes of a get.
// - kBye: connection. From the source: it leaves. From the target: it closed the connection to make
//   room for others; the source says kHello again before it sends anything else.
// - kAsk, kPermit (refused), kWithdraw, kWithdrawn: connection, grant (ucx_grants.h).
struct Header {
  uint64_t connection = 0;
  uint64_t id = 0;
  uint64_t mapping = 0;
  uint64_t address = 0;
  uint64_t count = 0;
  uint64_t grant = 0;
  uint64_t refused = 0;  // kRefusedRegion, kRefusedGrant
};
inline constexpr uint64_t kRefusedRegion = 1;
inline constexpr uint64_t kRefusedGrant = 2;

// A put's data for one place of the target.
struct Fragment {
  uint64_t mapping = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// One tcp segment of UCX, so that the receiver need not assemble several.
inline constexpr size_t kMessageBytesMax = 60 << 10;
// UCX writes a message in one system call, without a copy of its own, up to 16 parts (UCP_MAX_IOV).
// The header is one.
inline constexpr size_t kFragmentsMax = 15;

// A put's header, sent as far as it is used. The data is the fragments' bytes, in their order.
struct PutHeader {
  Header base;
  std::array<Fragment, kFragmentsMax> to;

  size_t Bytes() const { return sizeof base + base.count * sizeof(Fragment); }
};
static_assert(sizeof(PutHeader) == sizeof(Header) + kFragmentsMax * sizeof(Fragment));

struct PutMessage {
  PutHeader header;
  std::array<ucp_dt_iov_t, kFragmentsMax> from;
  uint64_t bytes = 0;

  void Add(const Fragment& fragment, std::byte* source) {
    header.to[header.base.count] = fragment;
    from[header.base.count] = {source, fragment.bytes};
    ++header.base.count;
    bytes += fragment.bytes;
  }
  bool full() const { return header.base.count == kFragmentsMax || bytes == kMessageBytesMax; }
};

struct Endpoint;

// A send that has not ended. UCX passes its address to OnSent, and reads header and payload until
// then.
struct Operation {
  Endpoint* endpoint = nullptr;
  std::list<Operation>::iterator self;
  WireTicket* ticket = nullptr;  // null: nobody waits
  uint64_t bytes = 0;
  Message message = kHello;
  size_t header_bytes = 0;
  size_t parts = 0;           // of put.from
  PutMessage put;             // what is not a put uses `put.header.base` and one part
  std::string payload;        // if the data is not somebody else's
  uint64_t acknowledges = 0;  // FlushRma's grant
};

struct Awaited {
  WireTicket* ticket = nullptr;
  std::byte* local = nullptr;  // a get's
  uint64_t bytes = 0;
  uint64_t puts_flushed = 0;  // a flush's
};

struct FlushAsked {
  uint64_t count = 0;
  uint64_t id = 0;
  uint64_t grant = 0;
};

struct Imported {
  std::unique_ptr<SharedRegion> shared;
  std::byte* mapped = nullptr;  // the region in this process, if it can be mapped
  uint64_t address = 0;
  uint64_t mapping = 0;
  RemoteKey key;  // if UCX can put there (ucx_rma.h)
};

// A connection, at its source (which opened it) or at its target (where it carries the answers).
struct Endpoint {
  uint64_t connection = 0;
  std::string process;                      // ThisProcess() there
  std::shared_ptr<MessageChannel> channel;  // a ring or a socket; else
  ucp_ep_h ep = nullptr;                    // (neither: it had ended)
  bool near = false;                        // a ring: each sees the other's end
  std::string why_far;                      // why not near,
  std::string why_no_fabric;                // and why UCX does not carry the messages; or ""
  ucs_status_ptr_t closing = nullptr;       // of ep, since Cut
  std::vector<Endpoint*>* waiting = nullptr;
  absl::Status health;
  std::list<Operation> operations;
  std::list<Operation> spare;  // one node: most sends end at once and leave it unused
  // At the source:
  std::list<Imported> imports;
  std::map<uint64_t, Awaited> awaited;  // by id
  uint64_t puts_started = 0;
  uint64_t puts_flushed = 0;
  bool has_put = false;                            // by a message
  bool closed_by_target = false;                   // to make room; nothing was under way
  std::map<uint64_t, WireGrants::Permit> permits;  // by grant
  std::map<uint64_t, bool> withdrawn;              // grants; whether the target waits for it
  bool by_rma = false;                             // some of its memory is written by ucp_put
  bool rma_unflushed = false;                      // no flush was started since the last such put
  int rma_flushes = 0;                             // under way
  // At the target:
  uint64_t used = 0;           // when the source last sent something: UcxTarget::uses_ then
  uint64_t puts_received = 0;  // of those, the last ones may still be copied to a device
  uint64_t puts_applied = 0;
  bool refused = false;
  bool left = false;  // the source said so: it writes no more
  std::vector<FlushAsked> flushes;
  std::set<uint64_t> writes_under;  // grants: the source may write by itself
};

// Counts one operation in `ticket`, and no more; null: nobody waits.
void Begin(WireTicket* ticket, uint64_t bytes);
void Finish(WireTicket* ticket, uint64_t bytes, const absl::Status& status);

// For sends of UCX: an operation that is not under way yet, what UCX made of it (done, failed, or
// under way with this as its callback), and its end.
Operation* NewOperation(Endpoint* endpoint, uint64_t bytes, WireTicket* ticket);
void Launched(Operation* operation, ucs_status_ptr_t request);
void EndOperation(void* request, ucs_status_t status, void* operation);

// What ucp_ep_print_info says.
std::string InfoOf(ucp_ep_h ep);

// The start of a message in a ring; the header and the data follow.
struct Frame {
  uint32_t message = 0;
  uint32_t header_bytes = 0;
};

// Payloads that are read after this call are either the caller's until its ticket is done, or
// copied (a hello's).
void Send(Endpoint* endpoint, Message message, const Header& header, const void* data, size_t bytes,
          WireTicket* ticket);
void SendPut(Endpoint* endpoint, const PutMessage& put, WireTicket* ticket);

// Opens and closes endpoints of one worker, which the caller owns and destroys before this.
class UcxEndpoints {
 public:
  // `host` and `tcp` outlive this; what is null is not used. `fabric`: UCX comes before tcp.
  UcxEndpoints(ucp_worker_h worker, HostWire* host, TcpWire* tcp, bool fabric)
      : worker_(worker), host_(host), tcp_(tcp), fabric_(fabric) {}

  // A ring to a process of this host that is visible from here; else tcp; UCX where both sides
  // have a fabric, or one has no tcp. `address` comes from SealAddress. RESOURCE_EXHAUSTED: this
  // process has no descriptors or no memory left at the moment.
  absl::StatusOr<std::unique_ptr<Endpoint>> Open(const std::string& address);

  // Forced and bounded: nothing is asked of the peer, and what was under way ends with an error.
  // Transfers that ended OK were flushed, so nothing of theirs is lost. A kBye that waits for room
  // in a ring is sent when there is some.
  void Close(std::unique_ptr<Endpoint> endpoint);

  // Waits, but not for long, until the peer has all puts that were started by RMA. False: it does
  // not have them.
  bool SettleRma(Endpoint* endpoint);

  // Closes the endpoint's connection in UCX and no more; true when nothing comes through it any
  // longer. Does not wait.
  static bool Cut(Endpoint* endpoint);

  // Lets go of all that UCX knows of endpoints that did not close in time. To be called before the
  // worker is destroyed.
  void ForgetKeys();

  // Sends messages that waited for room in a ring; true if it sent any.
  bool SendWaiting();
  // To be called before a sleep on HostWire::fd(). False if SendWaiting can send something now.
  bool AwaitRoom();

  // Marks endpoints as unhealthy whose connections have ended, or whose processes have and their
  // last messages were read.
  void LoseEnded();
  // Readable when LoseEnded has something to do.
  int ended_fd() const { return processes_.fd(); }

 private:
  absl::StatusOr<std::shared_ptr<MessageChannel>> ChannelTo(const std::string& sealed,
                                                            const UcxAddress& address, bool near);
  absl::Status OpenInUcx(const UcxAddress& address, Endpoint* endpoint);
  void CloseInHost(std::unique_ptr<Endpoint> endpoint);
  void CloseInUcx(std::unique_ptr<Endpoint> endpoint);
  void Forget(Endpoint* endpoint);
  // Of processes that are gone.
  void ForgetChannels();

  const ucp_worker_h worker_;
  HostWire* const host_;
  TcpWire* const tcp_;
  const bool fabric_;
  uint64_t tcp_ended_ = 0;      // TcpWire::ended() that was looked at
  std::vector<Endpoint*> far_;  // that have a socket
  ProcessWatch processes_;
  // By address. Successive connections to a process share one, so messages of an earlier connection
  // arrive before those of a later one.
  std::map<std::string, std::shared_ptr<MessageChannel>> channels_;
  std::vector<Endpoint*> waiting_;                  // for room in their rings
  std::vector<Endpoint*> ended_;                    // their processes; last words are to be read
  std::vector<std::unique_ptr<Endpoint>> leaving_;  // closed, but for their kBye
  // Endpoints that UCX did not close in time. UCX may still call back into them, so they live as
  // long as the worker.
  std::vector<std::unique_ptr<Endpoint>> abandoned_;
};

}  // namespace skein::engine
