// The virtual network: processes that die and return, calls with a deadline, streams.
//
// A call is delivered after a random delay, independently of other calls, so calls may be
// reordered. Request and reply may each be lost; the caller then gets UNAVAILABLE or, at the call's
// deadline, DEADLINE_EXCEEDED, whether or not the callee executed it. A request may be executed
// twice (the caller sees one reply) or refused with RESOURCE_EXHAUSTED, as by a full inbox. A
// stream's messages keep their order in each direction. When it breaks, each side learns of it at
// its own time. Server streams lose nothing sent before the break; bidirectional streams may.
// A full inbox refuses calls and new streams. It refuses no message on an open stream: its process
// stops reading, so messages wait, as they do behind a delay or in a paused process. A cut stops
// what goes from one process to another, while the other direction works. It breaks their server
// streams, loses calls, and holds up their bidirectional streams, as TCP does. A refusal breaks
// what one process has opened to another, and each further attempt fails at once. A silence holds
// up all that their server streams carry, in both directions, and nothing else. After it what was
// sent comes, unless a keepalive has ended the stream: each end learns that at its own time, and
// what was held up is lost. A stream that is opened under it is reached after it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/coverage.h"
#include "tests/sim/duplex.h"
#include "tests/sim/over_wire.h"
#include "tests/sim/scenario.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

class Network;

// A process at a fixed endpoint. `generation` grows at each start and each death.
class Process {
 public:
  Process(Network* network, std::string endpoint, TimeUs clock_offset_us)
      : network_(network), endpoint_(std::move(endpoint)), clock_offset_us_(clock_offset_us) {}
  virtual ~Process() = default;

  void Start();
  void Crash();  // everything in it is gone
  // Pauses the process until then, if it is not paused for longer; its messages and timers wait.
  void StandStill(TimeUs until);
  bool stands_still() const;
  bool alive() const { return alive_; }
  uint64_t generation() const { return generation_; }
  const std::string& endpoint() const { return endpoint_; }

  // Runs `action` after `delay`, or when it runs again, if this process is still the same then.
  void After(TimeUs delay, std::function<void()> action);
  // At once, if it does not stand still; else when it runs again, in the order of the calls.
  void WhenAwake(std::function<void()> action);
  // The process's own clock. Its origin changes by minutes, either way, at each start. While the
  // process lives, the clock only goes forward; JumpClock makes it jump.
  TimeUs LocalNow() const;
  void JumpClock(TimeUs by);

 protected:
  virtual void OnStart() = 0;
  virtual void OnCrash() = 0;
  virtual void OnClockJump() = 0;

  Network* network_;

 private:
  void WakeLater();
  void Wake();

  std::string endpoint_;
  TimeUs clock_offset_us_;  // every process has its own origin of time
  bool alive_ = false;
  uint64_t generation_ = 0;
  TimeUs stands_until_us_ = 0;
  std::deque<std::function<void()>> waiting_;  // until it runs again
};

// A stream on which the server sends messages. Both ends hold it; an end whose process died is no
// longer called.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Network* network, Process* client, std::string endpoint,
         std::function<void(absl::Status)> ended)
      : network_(network),
        client_(client),
        endpoint_(std::move(endpoint)),
        client_generation_(client->generation()),
        client_ended_(std::move(ended)) {}

  // Server's side. `deliver` runs at the client, in order.
  void Accept(Process* server, std::function<void()> closed);
  void Send(std::function<void()> deliver);
  void End();
  // Client's side. What `deliver` does at the server is done after Accept, in order. The stream
  // holds `deliver` until then and lives while it runs: `deliver` must not own the stream.
  void SendToServer(std::function<void()> deliver);
  void Close();

  void Break();                                       // the connection is lost
  void FallSilent();                                  // ends by a keepalive, if it lasts
  void Refuse();                                      // instead of being accepted
  void Reach(Process* server) { reached_ = server; }  // it will accept, if it lives on
  bool Uses(const Process* process) const {
    return client_ == process || server_ == process || reached_ == process;
  }
  bool Runs(const std::string& client, const std::string& server) const {
    const Process* at = server_ != nullptr ? server_ : reached_;
    return client_->endpoint() == client && at != nullptr && at->endpoint() == server;
  }
  bool over() const { return over_; }
  bool given_up() const { return given_up_; }  // by a keepalive
  bool Joins(const std::string& client, const std::string& server) const {
    return client_->endpoint() == client && endpoint_ == server;
  }
  Process* server() const { return server_; }  // null until Accept

 private:
  void TellClient(absl::Status status);
  void TellServer();
  void AtClient(std::function<void()> action);
  void AtServer(std::function<void()> action);
  TimeUs Arrival(TimeUs delay) const;  // of what is sent now

  Network* network_;
  Process* client_;
  std::string endpoint_;  // the server's
  uint64_t client_generation_;
  std::function<void(absl::Status)> client_ended_;
  Process* reached_ = nullptr;
  Process* server_ = nullptr;
  uint64_t server_generation_ = 0;
  std::function<void()> server_closed_;
  TimeUs last_arrival_us_ = 0;
  TimeUs last_arrival_at_server_us_ = 0;
  std::vector<std::function<void()>> before_accept_;
  bool over_ = false;         // nothing more is sent
  bool given_up_ = false;     // and nothing more comes
  bool client_done_ = false;  // closed, or told of the end
  bool server_done_ = false;
};

class Network {
 public:
  Network(const Scenario& scenario, Random* random, VirtualTime* time, Trace* trace)
      : scenario_(scenario), random_(random), time_(time), trace_(trace) {}

  VirtualTime& time() { return *time_; }
  Random& random() { return *random_; }
  Trace& trace() { return *trace_; }
  const Scenario& scenario() const { return scenario_; }
  bool healed() const { return time_->now() >= scenario_.heals_us; }
  bool Happens(double chance) { return chance > 0 && !healed() && random_->Chance(chance); }
  Coverage& coverage() { return coverage_; }
  template <class T>
  auto Encoded(const T& message) {  // as its receiver gets it
    return OverWire(message, &malformed_);
  }
  // Why a process would refuse a message that it gets, if it ever would: by the codec, its numbers,
  // or its place on the stream.
  const std::string& malformed() const { return malformed_; }
  void NoteMalformed(const absl::Status& status) {
    if (!status.ok() && malformed_.empty()) malformed_ = status.ToString();
  }
  TimeUs Delay();
  TimeUs TokenDelay();

  void Add(Process* process) { processes_[process->endpoint()] = process; }
  Process* Find(const std::string& endpoint);  // null unless alive

  // `execute` runs at the callee with a function that sends the reply; `done` runs at the caller,
  // once. Reply has a `status`.
  template <class Reply>
  void Call(Process* caller, const std::string& endpoint, TimeUs timeout_us,
            std::function<void(Process*, std::function<void(Reply)>)> execute,
            std::function<void(Reply)> done, bool may_be_refused = true);

  // `accept` runs at the server and calls Stream::Accept. `ended` runs at the client, at most once.
  std::shared_ptr<Stream> Open(Process* client, const std::string& endpoint,
                               std::function<void(Process*, std::shared_ptr<Stream>)> accept,
                               std::function<void(absl::Status)> ended);
  // The same of a stream on which both send.
  std::shared_ptr<Duplex> OpenDuplex(Process* client, const std::string& endpoint,
                                     Duplex::Accept accept,
                                     std::function<void(absl::Status)> ended);
  void BreakStreamsOf(const Process* process);
  // Until then, or until the world heals, nothing gets from one to the other.
  void Cut(const std::string& from, const std::string& to, TimeUs until);
  bool IsCut(const std::string& from, const std::string& to) const {
    return CutUntil(from, to) > time_->now();
  }
  TimeUs CutUntil(const std::string& from, const std::string& to) const;  // 0: it is not cut
  // Until then, or until the world heals, nothing that one opens to the other is taken.
  void Refuse(const std::string& from, const std::string& to, TimeUs until);
  int64_t connections_refused() const { return connections_refused_; }  // so
  // Until then, or until the world heals, nothing gets through their server streams.
  void Silence(const std::string& client, const std::string& server, TimeUs until);
  TimeUs SilentUntil(const std::string& client, const std::string& server) const;  // 0: not now
  void NoteKeepalive() { ++keepalives_; }
  int64_t keepalives() const { return keepalives_; }  // that ended a server stream
  TimeUs Keepalive();  // until an end notices that nothing gets through

 private:
  // Counts it.
  bool Refuses(const std::string& from, const std::string& to);

  const Scenario& scenario_;
  Random* random_;
  VirtualTime* time_;
  Trace* trace_;
  std::map<std::string, Process*> processes_;
  std::vector<std::weak_ptr<Stream>> streams_;
  std::map<std::pair<std::string, std::string>, TimeUs> cuts_;      // from, to: until
  std::map<std::pair<std::string, std::string>, TimeUs> refusals_;  // likewise
  std::map<std::pair<std::string, std::string>, TimeUs> silences_;  // client, server: until
  int64_t connections_refused_ = 0;
  int64_t keepalives_ = 0;
  Coverage coverage_;
  std::vector<std::weak_ptr<Duplex>> duplexes_;
  uint64_t sessions_ = 0;  // of duplexes, so far
  std::string malformed_;
};

template <class Reply>
void Network::Call(Process* caller, const std::string& endpoint, TimeUs timeout_us,
                   std::function<void(Process*, std::function<void(Reply)>)> execute,
                   std::function<void(Reply)> done, bool may_be_refused) {
  auto finished = std::make_shared<bool>(false);
  const auto finish = [finished, done](Reply reply) {
    if (*finished) return;
    *finished = true;
    done(std::move(reply));
  };
  const auto fail = [caller, finish](TimeUs after, absl::Status status) {
    caller->After(after, [finish, status] {
      Reply reply;
      reply.status = status;
      finish(std::move(reply));
    });
  };
  fail(timeout_us, absl::DeadlineExceededError("no reply in time"));
  if (Refuses(caller->endpoint(), endpoint)) {
    return fail(Delay(), absl::UnavailableError("connection refused"));
  }
  if (IsCut(caller->endpoint(), endpoint)) return;
  if (Happens(scenario_.loss_chance)) {
    if (random_->Chance(0.5)) fail(Delay(), absl::UnavailableError("connection lost"));
    return;
  }
  const uint64_t generation = caller->generation();
  time_->At(time_->now() + Delay(), [=, this] {
    Process* callee = Find(endpoint);
    if (callee == nullptr) {
      if (caller->generation() != generation) return;
      return fail(Delay(), absl::UnavailableError("connection refused"));
    }
    const auto answer = [=, this, from = callee->endpoint()](Reply reply) {
      if (caller->generation() != generation || !caller->alive()) return;
      if (IsCut(from, caller->endpoint())) return;
      if (Happens(scenario_.loss_chance)) {
        if (random_->Chance(0.5)) fail(Delay(), absl::UnavailableError("connection lost"));
        return;
      }
      caller->After(Delay(), [finish, sent = ReplyOverWire(reply, &malformed_)] { finish(sent); });
    };
    if (may_be_refused && Happens(scenario_.refusal_chance)) {
      Reply refused;
      refused.status = absl::ResourceExhaustedError("the inbox is full");
      return answer(std::move(refused));
    }
    callee->WhenAwake([=] { execute(callee, answer); });
  });
  if (!Happens(scenario_.duplicate_chance)) return;
  time_->At(time_->now() + Delay(), [=, this] {
    Process* callee = Find(endpoint);
    if (callee != nullptr) callee->WhenAwake([=] { execute(callee, [](Reply) {}); });
  });
}

}  // namespace skein::sim
