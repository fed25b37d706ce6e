#include "tests/sim/network.h"

#include <algorithm>
#include <utility>

namespace skein::sim {

void Process::Start() {
  ++generation_;
  if (generation_ > 1) {
    const uint64_t mixed = (static_cast<uint64_t>(clock_offset_us_) + generation_) *
                           0x9e3779b97f4a7c15u;  // of no randomness of the world's
    clock_offset_us_ = static_cast<TimeUs>(mixed >> 20) % (1000 * scheduler::kSecondUs);
  }
  alive_ = true;
  network_->trace().Note(network_->time().now(), endpoint_, "starts", generation_);
  OnStart();
}

void Process::Crash() {
  if (!alive_) return;
  network_->trace().Note(network_->time().now(), endpoint_, "dies", generation_);
  alive_ = false;
  stands_until_us_ = 0;
  ++generation_;
  OnCrash();
  network_->BreakStreamsOf(this);
}

void Process::After(TimeUs delay, std::function<void()> action) {
  const uint64_t generation = generation_;
  network_->time().At(network_->time().now() + delay,
                      [this, generation, action = std::move(action)] {
                        if (alive_ && generation_ == generation) WhenAwake(action);
                      });
}

void Process::WhenAwake(std::function<void()> action) {
  const TimeUs now = network_->time().now();
  if (now >= stands_until_us_) return action();
  After(stands_until_us_ - now, std::move(action));
}

void Process::StandStill(TimeUs until) {
  if (!alive_) return;
  network_->trace().Note(network_->time().now(), endpoint_, "stands still", generation_);
  stands_until_us_ = until;
}

void Process::JumpClock(TimeUs by) {
  if (!alive_) return;
  network_->trace().Note(network_->time().now(), endpoint_, "clock jumps", generation_);
  clock_offset_us_ += by;
  OnClockJump();
}

TimeUs Process::LocalNow() const { return network_->time().now() + clock_offset_us_; }

void Stream::Accept(Process* server, std::function<void()> closed) {
  server_ = server;
  server_generation_ = server->generation();
  server_closed_ = std::move(closed);
  for (auto& deliver : std::exchange(before_accept_, {})) SendToServer(std::move(deliver));
  if (client_done_ || over_) TellServer();  // closed while the request was on its way
}

void Stream::SendToServer(std::function<void()> deliver) {
  if (over_) return;
  if (server_ == nullptr) return before_accept_.push_back(std::move(deliver));
  if (network_->Happens(network_->scenario().break_chance)) return Break();
  AtServer([self = shared_from_this(), deliver = std::move(deliver)] { deliver(); });
}

void Stream::Send(std::function<void()> deliver) {
  if (over_) return;
  if (network_->Happens(network_->scenario().break_chance)) return Break();
  const std::string& server = server_->endpoint();
  const std::string& client = client_->endpoint();
  if (network_->IsCut(server, client) || network_->IsCut(client, server)) return Break();
  const TimeUs delay = network_->TokenDelay();
  last_arrival_us_ = std::max(last_arrival_us_, network_->time().now() + delay);
  network_->time().At(last_arrival_us_, [self = shared_from_this(), deliver = std::move(deliver)] {
    self->AtClient([self, deliver] {
      if (!self->client_done_) deliver();
    });
  });
}

void Stream::End() {
  if (over_) return;
  over_ = server_done_ = true;
  TellClient(absl::OkStatus());
}

void Stream::Close() {
  if (client_done_) return;
  client_done_ = true;
  over_ = true;
  TellServer();
}

void Stream::Break() {
  if (over_) return;
  over_ = true;
  TellClient(absl::UnavailableError("connection lost"));
  TellServer();
}

void Stream::Refuse() {
  if (over_) return;
  over_ = true;
  TellClient(absl::ResourceExhaustedError("the inbox is full"));
}

void Stream::AtClient(std::function<void()> action) {
  if (client_->generation() == client_generation_) client_->WhenAwake(std::move(action));
}

// After everything that was sent before.
void Stream::TellClient(absl::Status status) {
  last_arrival_us_ = std::max(last_arrival_us_, network_->time().now() + network_->Delay());
  network_->time().At(last_arrival_us_, [self = shared_from_this(), status] {
    self->AtClient([self, status] {
      if (!std::exchange(self->client_done_, true)) self->client_ended_(status);
    });
  });
}

void Stream::TellServer() {
  if (server_ == nullptr || server_done_) return;
  AtServer([self = shared_from_this()] { self->server_closed_(); });
  server_done_ = true;
}

// After everything that was sent before.
void Stream::AtServer(std::function<void()> action) {
  TimeUs& last = last_arrival_at_server_us_;
  last = std::max(last, network_->time().now() + network_->Delay());
  network_->time().At(last, [self = shared_from_this(), action = std::move(action)] {
    if (self->server_->alive() && self->server_->generation() == self->server_generation_) {
      self->server_->WhenAwake(action);
    }
  });
}

Duplex::Duplex(Network* network, Process* client, std::string server,
               std::function<void(absl::Status)> ended)
    : network_(network) {
  ends_[kClient] = {.endpoint = client->endpoint(),
                    .process = client,
                    .generation = client->generation(),
                    .ended = std::move(ended)};
  ends_[kServer].endpoint = std::move(server);
}

void Duplex::Open(Accept accept) {
  Push(kServer, [this, accept = std::move(accept)] {
    End& end = ends_[kServer];
    end.process = network_->Find(end.endpoint);
    if (end.process == nullptr) return Break();
    end.generation = end.process->generation();
    end.process->WhenAwake(
        [self = shared_from_this(), accept] { accept(self->ends_[kServer].process, self); });
  });
}

void Duplex::Accepted(Process* server, std::function<void(absl::Status)> ended) {
  End& end = ends_[kServer];
  end.process = server;
  end.ended = std::move(ended);
  if (end.doomed) LearnAt(network_->time().now() + network_->Delay(), kServer);
}

bool Duplex::Uses(const Process* process) const {
  return ends_[kClient].process == process || ends_[kServer].process == process;
}

bool Duplex::Joins(const std::string& a, const std::string& b) const {
  const std::string& client = ends_[kClient].endpoint;
  const std::string& server = ends_[kServer].endpoint;
  return (client == a && server == b) || (client == b && server == a);
}

TimeUs Duplex::Keepalive() {
  const TimeUs unit_us = network_->scenario().time_scale * scheduler::kMillisecondUs;
  return network_->random().Between(300, 1000) * unit_us;
}

void Duplex::At(Side side, std::function<void()> action) {
  const End& end = ends_[side];
  if (end.process == nullptr || !end.process->alive()) return;
  if (end.process->generation() == end.generation) end.process->WhenAwake(std::move(action));
}

void Duplex::Push(Side to, std::function<void()> action) {
  End& end = ends_[to];
  end.last_arrival_us = std::max(end.last_arrival_us, network_->time().now() + network_->Delay());
  end.coming.push_back({end.last_arrival_us, std::move(action)});
  network_->time().At(end.last_arrival_us, [self = shared_from_this(), to] { self->Arrive(to); });
}

void Duplex::Arrive(Side side) {
  End& end = ends_[side];
  const TimeUs now = network_->time().now();
  if (end.coming.empty() || now < end.held_up_until_us) return;
  const TimeUs cut_until = network_->CutUntil(ends_[1 - side].endpoint, end.endpoint);
  if (cut_until > now) {
    end.held_up_until_us = cut_until + network_->random().Between(1, (cut_until - now) / 2 + 1);
    network_->time().At(end.held_up_until_us,
                        [self = shared_from_this(), side] { self->Arrive(side); });
    return;
  }
  while (!end.coming.empty() && end.coming.front().when_us <= now) {
    const std::function<void()> action = std::move(end.coming.front().action);
    end.coming.pop_front();
    action();
  }
}

void Duplex::Send(Side from, std::function<void()> deliver) {
  const Side to = from == kClient ? kServer : kClient;
  if (lost_ || ends_[from].done || ends_[to].done) return;
  const Scenario& scenario = network_->scenario();
  const bool breaks = network_->Happens(scenario.break_chance);
  if (breaks || network_->Happens(scenario.link_break_chance)) return Break();
  Push(to, [this, to, deliver = std::move(deliver)] {
    At(to, [self = shared_from_this(), to, deliver] {
      if (!self->ends_[to].done) deliver();
    });
  });
}

void Duplex::Tell(Side side, const absl::Status& status) {
  At(side, [self = shared_from_this(), side, status] {
    End& end = self->ends_[side];
    if (end.ended == nullptr) {
      end.doomed = true;
    } else if (!std::exchange(end.done, true)) {
      end.ended(status);
    }
  });
}

void Duplex::Close(Side by, absl::Status status) {
  if (std::exchange(ends_[by].done, true) || lost_) return;
  const Side other = by == kClient ? kServer : kClient;
  Push(other, [this, other, status = std::move(status)] { Tell(other, status); });
}

void Duplex::LearnAt(TimeUs when, Side side) {
  network_->time().At(when, [self = shared_from_this(), side] { self->Learn(side); });
}

void Duplex::Learn(Side side) {
  ends_[side].coming.clear();
  Tell(side, absl::UnavailableError("connection lost"));
}

void Duplex::LoseSome(Side to) {
  std::deque<Arriving>& coming = ends_[to].coming;
  if (coming.empty() || network_->random().Chance(0.5)) return;
  const auto all = static_cast<int64_t>(coming.size());
  coming.resize(static_cast<size_t>(network_->random().Between(0, all - 1)));
}

void Duplex::Break() {
  if (std::exchange(lost_, true)) return;
  const bool half_open = network_->Happens(network_->scenario().half_open_chance);
  const Side unaware = network_->random().Chance(0.5) ? kClient : kServer;
  for (const Side side : {kClient, kServer}) {
    LoseSome(side);
    const bool waits = half_open && side == unaware;
    const TimeUs told_us = network_->time().now() + (waits ? Keepalive() : network_->Delay());
    LearnAt(std::max(told_us, ends_[side].last_arrival_us), side);
  }
}

void Duplex::Starve() {
  for (const Side side : {kClient, kServer}) {
    network_->time().At(network_->time().now() + Keepalive(), [self = shared_from_this(), side] {
      const std::string& client = self->ends_[kClient].endpoint;
      const std::string& server = self->ends_[kServer].endpoint;
      const Network& network = *self->network_;
      if (network.IsCut(client, server) || network.IsCut(server, client)) self->GiveUp(side);
    });
  }
}

// After the cut the other end hears of it, or it learns by its own keepalive.
void Duplex::GiveUp(Side side) {
  if (ends_[side].done) return;
  Learn(side);
  if (std::exchange(lost_, true)) return;
  const Side other = side == kClient ? kServer : kClient;
  LoseSome(other);
  if (network_->random().Chance(0.5)) {
    Push(other, [this, other] { Tell(other, absl::UnavailableError("connection lost")); });
  } else {
    LearnAt(network_->time().now() + Keepalive(), other);
  }
}

TimeUs Network::Delay() {
  TimeUs delay = random_->Between(scenario_.delay_min_us, scenario_.delay_max_us);
  if (Happens(scenario_.spike_chance)) delay += random_->Between(0, scenario_.spike_us);
  return delay;
}

TimeUs Network::TokenDelay() {
  const bool spike = Happens(scenario_.token_spike_chance);
  return Delay() + (spike ? random_->Between(0, scenario_.spike_us) : 0);
}

Process* Network::Find(const std::string& endpoint) {
  const auto it = processes_.find(endpoint);
  return it != processes_.end() && it->second->alive() ? it->second : nullptr;
}

std::shared_ptr<Stream> Network::Open(Process* client, const std::string& endpoint,
                                      std::function<void(Process*, std::shared_ptr<Stream>)> accept,
                                      std::function<void(absl::Status)> ended) {
  auto stream = std::make_shared<Stream>(this, client, std::move(ended));
  streams_.push_back(stream);
  if (Happens(scenario_.loss_chance) || IsCut(client->endpoint(), endpoint) ||
      IsCut(endpoint, client->endpoint())) {
    stream->Break();
    return stream;
  }
  time_->At(time_->now() + Delay(), [this, stream, endpoint, accept = std::move(accept)] {
    Process* server = Find(endpoint);
    if (server == nullptr) return stream->Break();
    if (Happens(scenario_.refusal_chance)) return stream->Refuse();
    stream->Reach(server);
    server->WhenAwake([=] { accept(server, stream); });
  });
  return stream;
}

void Network::Cut(const std::string& from, const std::string& to, TimeUs until) {
  trace_->Note(time_->now(), from, "is cut from", static_cast<uint64_t>(until));
  TimeUs& end = cuts_[{from, to}];
  end = std::max(end, until);
  for (const auto& weak : std::vector<std::weak_ptr<Duplex>>(duplexes_)) {
    const std::shared_ptr<Duplex> stream = weak.lock();
    if (stream != nullptr && stream->Joins(from, to)) stream->Starve();
  }
}

TimeUs Network::CutUntil(const std::string& from, const std::string& to) const {
  if (cuts_.empty() || healed()) return 0;
  const auto it = cuts_.find({from, to});
  if (it == cuts_.end() || it->second <= time_->now()) return 0;
  return std::min(it->second, scenario_.heals_us);
}

std::shared_ptr<Duplex> Network::OpenDuplex(Process* client, const std::string& endpoint,
                                            Duplex::Accept accept,
                                            std::function<void(absl::Status)> ended) {
  auto stream = std::make_shared<Duplex>(this, client, endpoint, std::move(ended));
  std::erase_if(duplexes_, [](const auto& weak) { return weak.expired(); });
  duplexes_.push_back(stream);
  const bool cut = IsCut(client->endpoint(), endpoint) || IsCut(endpoint, client->endpoint());
  // Under a cut no connection can be made, but one may be there already.
  if (Happens(scenario_.loss_chance) || (cut && random_->Chance(0.5))) {
    stream->Break();
    return stream;
  }
  stream->Open(std::move(accept));
  if (cut) stream->Starve();
  return stream;
}

void Network::BreakStreamsOf(const Process* process) {
  std::erase_if(duplexes_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : std::vector<std::weak_ptr<Duplex>>(duplexes_)) {
    const std::shared_ptr<Duplex> stream = weak.lock();
    if (stream != nullptr && stream->Uses(process)) stream->Break();
  }
  std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : std::vector<std::weak_ptr<Stream>>(streams_)) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (stream != nullptr && stream->Uses(process)) stream->Break();
  }
}

}  // namespace skein::sim
