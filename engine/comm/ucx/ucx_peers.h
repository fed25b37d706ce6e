// The connections of a UCX fabric, their peers, and what is being sent on them.
// Internal to engine/comm. All calls under the fabric's lock.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/ucx/wire_group.h"
#include "engine/host/host_wire.h"
#include "engine/host/process_watch.h"
#include "engine/net/tcp_wire.h"
#include "engine/ucx/ucx_address.h"
#include "engine/ucx/ucx_plane.h"

namespace skein::engine {

struct UcxPeer;
struct UcxGroup;

// A message that is being sent. The wire reads header and data through it once it has room for
// them; the plane passes its address to OnSent.
struct UcxOperation {
  WireHeader header;
  std::span<const std::byte> data;
  std::vector<std::byte> owned;  // if the data is nobody else's
  UcxPeer* peer = nullptr;
  std::list<UcxOperation>::iterator self;
  UcxGroup* group = nullptr;  // whose message it is part of; null: a control message
  WireGroup::Outgoing* message = nullptr;
  int to = 0;
  PlaneOperation* in_ucx = nullptr;  // while it is under way there
};

struct UcxPeer {
  class UcxPeers* owner = nullptr;
  std::string process;                      // ThisProcess() there
  std::unique_ptr<MessageChannel> channel;  // a ring or a socket; else, and if it is not closed,
  PlanePeer* ucx = nullptr;
  bool near = false;  // a ring
  bool dead = false;
  int groups = 0;  // that use it
  std::list<UcxOperation> operations;
};

class UcxPeers {
 public:
  // `on_sent` when an operation that Send left under way ends; `on_death` when a peer is lost. Both
  // come from within Send, SendWaiting, LoseEnded, CloseAll or OnSent. `plane`, in which all is
  // sent as `user`, `host` and `tcp` (what is null is not used) outlive this.
  UcxPeers(UcxPlane* plane, PlaneUser* user, HostWire* host, TcpWire* tcp,
           std::function<void(const UcxOperation&)> on_sent, std::function<void()> on_death,
           std::string far_refused = "");

  // Connects at the first call for an address. A peer that cannot be reached is dead. To be given
  // back by Release. RESOURCE_EXHAUSTED: this process has no descriptors or memory left now.
  // FAILED_PRECONDITION: it is of another host, and these are refused (UcxOptions::far_refused).
  absl::StatusOr<UcxPeer*> Get(const UcxAddress& address);
  // Null is ignored. A peer stays connected for later groups, unless it is dead: one that no group
  // uses is forgotten then.
  void Release(UcxPeer* peer);
  size_t size() const { return peers_.size(); }
  bool Connected(const UcxAddress& address) const;  // false: dead, too

  // Since the start: connections, and peers that were lost or could not be reached.
  size_t made() const { return made_; }
  size_t lost() const { return lost_; }

  // True: sent, and nothing refers to the operation any more. False: on_sent will be called.
  bool Send(UcxPeer* peer, UcxOperation operation);

  // Sends messages that waited for room in a ring or a socket, and returns their number.
  int SendWaiting();
  // To be called before a sleep on HostWire::fd(). False if SendWaiting can send something now.
  bool AwaitRoom();

  // PlaneUser::OnSent.
  void OnSent(void* cookie, bool ok);

  // Marks peers as dead whose sockets have ended, or whom UCX has lost, or whose processes have
  // ended and their last messages were read. True if there were any.
  bool LoseEnded();
  // Readable when LoseEnded has something to do.
  int ended_fd() const { return processes_.fd(); }

  // Copies what operations of `group` have still to send, so that they no longer refer to its
  // buffers.
  void Disown(UcxGroup* group);

  size_t under_way() const { return under_way_; }

  // Closes all connections by force. What is on its way in UCX goes on without this.
  void CloseAll();

 private:
  absl::Status Connect(const UcxAddress& address, UcxPeer* peer);
  void Ended(UcxOperation* operation);
  void Lost(UcxPeer* peer);
  void Close(UcxPeer* peer);
  void ForgetDead();

  UcxPlane* const plane_;
  PlaneUser* const user_;
  HostWire* const host_;
  TcpWire* const tcp_;
  const std::string far_refused_;  // empty: they are not
  uint64_t tcp_ended_ = 0;         // TcpWire::ended() that was looked at
  uint64_t ucx_losses_ = 0;        // UcxPlane::losses(), too
  const std::function<void(const UcxOperation&)> on_sent_;
  const std::function<void()> on_death_;
  std::map<std::string, std::unique_ptr<UcxPeer>> peers_;
  std::list<UcxOperation> spare_;  // most sends end at once and leave theirs unused
  size_t under_way_ = 0;
  size_t made_ = 0, lost_ = 0;
  std::vector<UcxPeer*> waiting_;  // for room in their rings
  ProcessWatch processes_;
  std::vector<UcxPeer*> ended_;  // their processes; last words are to be read
};

}  // namespace skein::engine
