// PeerStreams: the streams that workers or routers have opened to the orchestrator: their messages
// numbered, their peers named by a Key once they were welcomed. On one loop, but for Open. Bounded:
// a further stream is closed with RESOURCE_EXHAUSTED, which names the limit. What is sent to a peer
// within one round of the loop leaves in one batch, at the round's end.
//
// `Key` is 0-initialised for a stream that is not named yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/credentials.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/status_map.h"
#include "services/shell/loop.h"

namespace skein::services {

template <class InBatch, class OutBatch, class Key>
class PeerStreams {
 public:
  using Stream = ServerStream<InBatch, OutBatch>;
  using In = MessageOf<InBatch>;
  using Out = MessageOf<OutBatch>;
  struct Hooks {
    // A message of stream `call`, whose peer is `key`. Not OK: it is refused, the stream is closed
    // with that status and `broke` follows.
    std::function<absl::Status(uint64_t call, const Key& key, const In&)> message;
    // It is over, but not by Close; only of streams that are named or were refused.
    std::function<void(uint64_t call, const Key& key, const absl::Status& why)> broke;
    // Not OK: a further stream is closed with this.
    std::function<absl::Status()> admit = [] { return absl::OkStatus(); };
  };

  // At most `max` streams are open at a time. `peer` is what opens them, for the refusal: "worker".
  PeerStreams(Loop* loop, size_t max, const char* peer, Hooks hooks)
      : loop_(loop), max_(max), peer_(peer), hooks_(std::move(hooks)) {}

  // A stream begins; any thread. The raw pointer goes back to gRPC from the method's handler.
  Stream* Open(grpc::CallbackServerContext* context, uint64_t call) {
    auto stream = Stream::Make(context, [this](std::function<void()> hook) {
      loop_->PostFirst(std::move(hook), Loop::kHelp);
    });
    const absl::Status caller = CheckCaller(*context);
    const auto add = [this, call, stream, roles = CallerRoles(*context),
                      connection = context->peer()] { Add(call, stream, roles, connection); };
    if (!caller.ok()) {
      stream->Close(ToGrpc(caller));
    } else if (!loop_->TryPostFirst(add)) {
      stream->Close(
          ToGrpc(absl::ResourceExhaustedError("the inbox is full, or the process stops")));
    }
    stream->Open({.message = [this, call](const In& message) { Take(call, message); },
                  .ended =
                      [this, call] {
                        const auto ended = Remove(call);
                        if (!ended.has_value() || ended->key == Key{}) return;
                        hooks_.broke(call, ended->key,
                                     absl::UnavailableError("the peer closed it"));
                      }});
    return stream.get();
  }

  // From here on the stream is that of `key`, and its messages are of this generation. False: it
  // has ended.
  bool Name(uint64_t call, const Key& key, uint64_t generation) {
    const auto it = peers_.find(call);
    if (it == peers_.end()) return false;
    it->second.key = key;
    it->second.counters.Renumber(scheduler::FirstNumberOf(generation) + call);
    named_[key] = call;
    return true;
  }
  // The peer has said goodbye. Messages that it sent before it read the answer are dropped. The
  // peer closes the stream, which counts among `max` until then; no lease watches it. The keepalive
  // ends that of a peer that is dead.
  void Unname(uint64_t call) {
    const auto it = peers_.find(call);
    if (it == peers_.end()) return;
    Forget(call, it->second.key);
    it->second.key = Key{};
    it->second.left = true;
  }

  // What the peer is by its certificate; all roles without --mtls.
  tls::RoleSet RolesOf(uint64_t call) const {
    const auto it = peers_.find(call);
    return it != peers_.end() ? it->second.roles : tls::RoleSet{};
  }

  // Whether the stream of `key` came over this connection, as grpc::ServerContext::peer names it.
  bool CameOver(const Key& key, const std::string& connection) const {
    const auto it = named_.find(key);
    return it != named_.end() && peers_.at(it->second).connection == connection;
  }

  // Dropped where there is no stream, or none of that peer.
  void Send(uint64_t call, Out message) {
    const auto it = peers_.find(call);
    if (it == peers_.end()) return;
    Peer& peer = it->second;
    const int64_t now_us = MonotonicUs();
    if (peer.counters.Stuck(now_us)) {
      return Drop(call, absl::ResourceExhaustedError("messages are not acknowledged"));
    }
    peer.counters.Stamp(&message, now_us);
    const bool flush = peer.stream->Queue(std::move(message));
    if (flush) loop_->Defer([stream = peer.stream] { stream->Flush(); });
  }
  void SendTo(const Key& key, Out message) {
    const auto it = named_.find(key);
    if (it != named_.end()) Send(it->second, std::move(message));
  }

  // Closes the stream; `broke` is not called.
  void Close(uint64_t call, const absl::Status& status) {
    if (const auto closed = Remove(call)) closed->stream->Close(ToGrpc(status));
  }
  // Closes the stream; `broke` is called later, on the loop.
  void Drop(uint64_t call, const absl::Status& status) {
    const auto dropped = Remove(call);
    if (!dropped.has_value()) return;
    dropped->stream->Close(ToGrpc(status));
    loop_->PostFirst([this, call, key = dropped->key, status] { hooks_.broke(call, key, status); });
  }
  // On the loop, or when it has stopped. `broke` is not called.
  void CloseAll(const grpc::Status& status) {
    for (auto& [call, peer] : peers_) peer.stream->Close(status);
    peers_.clear();
    named_.clear();
  }

 private:
  struct Peer {
    std::shared_ptr<Stream> stream;
    MessageCounters counters;
    tls::RoleSet roles;
    std::string connection;  // as grpc::ServerContext::peer names it
    Key key{};
    bool left = false;
  };

  void Add(uint64_t call, const std::shared_ptr<Stream>& stream, tls::RoleSet roles,
           const std::string& connection) {
    if (absl::Status admitted = hooks_.admit(); !admitted.ok()) {
      stream->Close(ToGrpc(admitted));
    } else if (peers_.size() < max_) {
      peers_.emplace(call, Peer{stream, MessageCounters(call), roles, connection});
    } else {
      stream->Close(ToGrpc(absl::ResourceExhaustedError(
          absl::StrCat("The limit of ", peer_, " streams is reached (", max_, ")."))));
    }
  }

  void Take(uint64_t call, const In& message) {
    const auto it = peers_.find(call);
    if (it == peers_.end()) return;
    absl::Status status = it->second.counters.Take(message, MonotonicUs());
    // The message may end the stream: nothing of it is used afterwards.
    if (status.ok() && it->second.left) return;
    if (status.ok()) status = hooks_.message(call, Key(it->second.key), message);
    if (!status.ok()) Drop(call, status);
  }

  void Forget(uint64_t call, const Key& key) {
    const auto named = named_.find(key);
    if (named != named_.end() && named->second == call) named_.erase(named);
  }
  std::optional<Peer> Remove(uint64_t call) {
    auto removed = peers_.extract(call);
    if (removed.empty()) return std::nullopt;
    Forget(call, removed.mapped().key);
    return std::move(removed.mapped());
  }

  Loop* const loop_;
  const size_t max_;
  const char* const peer_;
  const Hooks hooks_;
  std::map<uint64_t, Peer> peers_;  // by call
  std::map<Key, uint64_t> named_;   // calls of those that were named
};

}  // namespace skein::services
