// The connections of a UcxWire and the messages on them. Internal to engine/transport.
//
// Memory that can be mapped is written by memcpy, memory that UCX writes truly remotely by ucp_put
// (ucx_rma.h), and the rest by messages of our own, whose failures come back to us and whose places
// the target checks against its regions and grants. Which way they take: UcxEndpoints::Open.
#pragma once

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
#include "engine/ucx/ucx_plane.h"

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
// - kBye: connection, refused. From the source: it leaves; kCutOff: over another connection of UCX,
//   having cut this one with puts that were not confirmed (ucx_rma.h). From the target: it closed
//   the connection to make room for others; the source says kHello again before it sends anything
//   else.
// - kAsk, kPermit (refused), kWithdraw, kWithdrawn: connection, grant (ucx_grants.h).
struct Header {
  uint64_t connection = 0;
  uint64_t id = 0;
  uint64_t mapping = 0;
  uint64_t address = 0;
  uint64_t count = 0;
  uint64_t grant = 0;
  uint64_t refused = 0;  // kRefusedRegion, kRefusedGrant; kCutOff
};
inline constexpr uint64_t kRefusedRegion = 1;
inline constexpr uint64_t kRefusedGrant = 2;
inline constexpr uint64_t kCutOff = 3;

// A put's data for one place of the target.
struct Fragment {
  uint64_t mapping = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// One segment of UCX, so that the receiver need not assemble several.
inline constexpr size_t kMessageBytesMax = 60 << 10;
// Of a message; its frame and header are two parts more.
inline constexpr size_t kFragmentsMax = 15;
static_assert(kFragmentsMax + 2 <= UcxPlane::kPartsMax);

// A put's header, sent as far as it is used. The data is the fragments' bytes, in their order.
struct PutHeader {
  Header base;
  std::array<Fragment, kFragmentsMax> to;

  size_t Bytes() const { return sizeof base + base.count * sizeof(Fragment); }
};
static_assert(sizeof(PutHeader) == sizeof(Header) + kFragmentsMax * sizeof(Fragment));

struct PutMessage {
  PutHeader header;
  std::array<std::span<const std::byte>, kFragmentsMax> from;
  uint64_t bytes = 0;

  void Add(const Fragment& fragment, const std::byte* source) {
    header.to[header.base.count] = fragment;
    from[header.base.count] = {source, fragment.bytes};
    ++header.base.count;
    bytes += fragment.bytes;
  }
  bool full() const { return header.base.count == kFragmentsMax || bytes == kMessageBytesMax; }
};

struct Endpoint;

// The start of a message; the header and the data follow.
struct Frame {
  uint32_t message = 0;
  uint32_t header_bytes = 0;
};

// A send that has not ended. The plane passes its address to OnSent, and reads frame, header and
// payload until then.
struct Operation {
  Endpoint* endpoint = nullptr;
  std::list<Operation>::iterator self;
  PlaneOperation* in_ucx = nullptr;  // while it is under way there
  bool by_rma = false;
  WireTicket* ticket = nullptr;  // null: nobody waits
  uint64_t bytes = 0;
  Frame frame;
  size_t parts = 0;           // of put.from
  PutMessage put;             // what is not a put uses `put.header.base` and one part
  std::string payload;        // if the data is not somebody else's
  bool flushes = false;       // FlushRma's
  uint64_t acknowledges = 0;  // its grant
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
  PlanePeer* ucx = nullptr;                 // (neither: it had ended)
  UcxPlane* plane = nullptr;
  PlaneUser* user = nullptr;  // of the plane: the wire
  bool near = false;          // a ring: each sees the other's end
  std::string why_far;        // why not near,
  std::string why_no_fabric;  // and why UCX does not carry the messages; or ""
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
  bool left = false;     // the source said so: it writes no more
  bool cut_off = false;  // or so: only what left its network card before the cut may still come
  std::vector<FlushAsked> flushes;
  std::set<uint64_t> writes_under;  // grants: the source may write by itself
};

// Counts one operation in `ticket`, and no more; null: nobody waits.
void Begin(WireTicket* ticket, uint64_t bytes);
void Finish(WireTicket* ticket, uint64_t bytes, const absl::Status& status);

// For sends of UCX: an operation that is not under way yet, what UCX made of it, and its end.
Operation* NewOperation(Endpoint* endpoint, uint64_t bytes, WireTicket* ticket);
void Launched(Operation* operation, UcxPlane::Started started);
void EndOperation(Operation* operation, bool ok);

// Payloads that are read after this call are either the caller's until its ticket is done, or
// copied (a hello's).
void Send(Endpoint* endpoint, Message message, const Header& header, const void* data, size_t bytes,
          WireTicket* ticket);
void SendPut(Endpoint* endpoint, const PutMessage& put, WireTicket* ticket);

// Opens and closes the endpoints of a wire, which is `user` of the plane.
class UcxEndpoints {
 public:
  // All outlive this; what is null of `host` and `tcp` is not used. Where UCX has a fabric it comes
  // before tcp. `far_refused`: UcxOptions::far_refused.
  UcxEndpoints(UcxPlane* plane, PlaneUser* user, HostWire* host, TcpWire* tcp,
               std::string far_refused = "")
      : plane_(plane), user_(user), host_(host), tcp_(tcp), far_refused_(std::move(far_refused)) {}

  // A ring to a process of this host that is visible from here; else tcp; UCX where both sides
  // have a fabric, or one has no tcp. `address` comes from SealAddress. RESOURCE_EXHAUSTED: this
  // process has no descriptors or no memory left at the moment. FAILED_PRECONDITION: another host,
  // and these are refused.
  absl::StatusOr<std::unique_ptr<Endpoint>> Open(const std::string& address);

  // Bounded: nothing is asked of the peer, and all tickets end, with an error where something of
  // theirs was under way. Transfers that ended OK were flushed, so nothing of theirs is lost.
  // Messages that lie in UCX are delivered nevertheless, and a put among them is applied while its
  // grant is open, or if it has none. A kBye that waits for room in a ring is sent when there is
  // some. With RmaPending the peer is cut off, for all (Cut), and told so.
  void Close(std::unique_ptr<Endpoint> endpoint);

  // Waits, but not for long, until the peer has all puts that were started by RMA. False: that is
  // not known, and RmaPending stays.
  bool SettleRma(Endpoint* endpoint);

  // Cuts the endpoint's process off in UCX, for all; true when nothing comes from it any longer.
  // Does not wait.
  static bool Cut(Endpoint* endpoint);

  // Sends messages that waited for room in a ring; true if it sent any.
  bool SendWaiting();
  // To be called before a sleep on HostWire::fd(). False if SendWaiting can send something now.
  bool AwaitRoom();

  // Marks endpoints as unhealthy whose connections have ended or which UCX has lost, or whose
  // processes have ended and their last messages were read.
  void LoseEnded();
  // Readable when LoseEnded has something to do.
  int ended_fd() const { return processes_.fd(); }

 private:
  absl::StatusOr<std::shared_ptr<MessageChannel>> ChannelTo(const std::string& sealed,
                                                            const UcxAddress& address, bool near);
  absl::Status OpenInUcx(const UcxAddress& address, Endpoint* endpoint);
  // After a cut: waits, but not for long, until UCX reads the memory of puts no more. False: it
  // may.
  bool AwaitRma(Endpoint* endpoint);
  void TellCut(const Endpoint& endpoint);
  void CloseInHost(std::unique_ptr<Endpoint> endpoint);
  void CloseInUcx(std::unique_ptr<Endpoint> endpoint);
  void Forget(Endpoint* endpoint);
  // Of processes that are gone.
  void ForgetChannels();

  UcxPlane* const plane_;
  PlaneUser* const user_;
  HostWire* const host_;
  TcpWire* const tcp_;
  const std::string far_refused_;  // empty: they are not
  uint64_t tcp_ended_ = 0;         // TcpWire::ended() that was looked at
  uint64_t ucx_losses_ = 0;        // UcxPlane::losses(), too
  std::vector<Endpoint*> far_;     // that have a socket
  std::vector<Endpoint*> in_ucx_;  // that have neither ring nor socket
  ProcessWatch processes_;
  // By address. Successive connections to a process share one, so messages of an earlier connection
  // arrive before those of a later one.
  std::map<std::string, std::shared_ptr<MessageChannel>> channels_;
  std::vector<Endpoint*> waiting_;                  // for room in their rings
  std::vector<Endpoint*> ended_;                    // their processes; last words are to be read
  std::vector<std::unique_ptr<Endpoint>> leaving_;  // closed, but for their kBye
};

}  // namespace skein::engine
