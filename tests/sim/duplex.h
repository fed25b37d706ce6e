// The streams of workers and routers to the orchestrator, on the virtual network.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "services/rpc/message_counters.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

class Network;
class Process;

// The numbers of a message on a Duplex, as services::MessageCounters sets and checks them.
class MessageNumbers {
 public:
  void set_session(uint64_t session) { session_ = session; }
  void set_sequence(uint64_t sequence) { sequence_ = sequence; }
  void set_acknowledged(uint64_t acknowledged) { acknowledged_ = acknowledged; }
  uint64_t session() const { return session_; }
  uint64_t sequence() const { return sequence_; }
  uint64_t acknowledged() const { return acknowledged_; }

 private:
  uint64_t session_ = 0, sequence_ = 0, acknowledged_ = 0;
};

// A stream on which both ends send. Each end's messages arrive in order. When it breaks, what is on
// its way to an end arrives, or is lost from some message on; then that end learns of the break. It
// may be half-open until then: an end that no word of the break reaches goes on to send, in vain,
// for as long as its keepalive waits.
// A cut holds messages up. They arrive after it, later the longer it lasted, because TCP's retries
// back off. An end that hears nothing for the keepalive's time gives the stream up; the other end
// hears of that after the cut, or not.
// Messages are numbered as between processes (services/rpc/message_counters.h). One whose receiver
// would refuse its numbers is a violation (Network::malformed).
class Duplex : public std::enable_shared_from_this<Duplex> {
 public:
  enum Side { kClient, kServer };
  using Accept = std::function<void(Process*, std::shared_ptr<Duplex>)>;

  // `session`: not 0.
  Duplex(Network* network, Process* client, std::string server, uint64_t session,
         std::function<void(absl::Status)> ended);

  // Client's side, once, before all else: the stream's first message is on its way. A full inbox
  // refuses the stream.
  void Open(Accept accept);
  // Server's side, once. `ended` runs at the server when the stream is over, but for its own Close.
  void Accepted(Process* server, std::function<void(absl::Status)> ended);
  // Server's side, before it sends: its messages are of this session.
  void Renumber(uint64_t session) { ends_[kServer].counters.Renumber(session); }
  // As the client has learnt it; 0: not yet.
  uint64_t client_session() const { return ends_[kClient].counters.session(); }
  // `deliver` runs at the other end.
  void Send(Side from, std::function<void()> deliver);
  // This end sends and receives nothing more. The other end gets what was sent before, or some of
  // it, then its `ended` runs with `status`.
  void Close(Side by, absl::Status status);
  void Break();
  void Starve();  // a path between its ends has been cut
  bool Uses(const Process* process) const;
  bool Joins(const std::string& a, const std::string& b) const;

 private:
  struct Arriving {
    TimeUs when_us = 0;
    std::function<void()> action;
  };
  struct End {
    std::string endpoint;
    Process* process = nullptr;  // null: the server has not heard of the stream
    uint64_t generation = 0;
    std::function<void(absl::Status)> ended;  // null: the server has not accepted
    services::MessageCounters counters = services::MessageCounters();
    std::deque<Arriving> coming;  // on its way to this end
    TimeUs last_arrival_us = 0;
    TimeUs held_up_until_us = 0;  // by a cut
    bool done = false;            // has closed, or was told of the end
    bool doomed = false;          // it is to be told of the break as soon as it has accepted
  };

  MessageNumbers Stamp(Side from);
  void Take(Side to, const MessageNumbers& numbers);  // when it is handled
  void Push(Side to, std::function<void()> action);
  void Arrive(Side side);
  void At(Side side, std::function<void()> action);
  void Tell(Side side, const absl::Status& status);
  void LearnAt(TimeUs when, Side side);
  void Learn(Side side);  // of the break, by itself
  void LoseSome(Side to);
  void GiveUp(Side side);

  Network* network_;
  End ends_[2];
  bool lost_ = false;  // nothing that is sent from now on arrives
};

}  // namespace skein::sim
