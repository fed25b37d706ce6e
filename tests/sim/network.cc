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
  waiting_.clear();
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
  if (waiting_.empty() && network_->time().now() >= stands_until_us_) return action();
  waiting_.push_back(std::move(action));
  if (waiting_.size() == 1) WakeLater();
}

void Process::WakeLater() {
  network_->time().At(stands_until_us_, [this, generation = generation_] {
    if (generation_ == generation) Wake();
  });
}

void Process::Wake() {
  if (network_->time().now() < stands_until_us_) return WakeLater();  // it was paused again
  while (!waiting_.empty()) {
    const std::function<void()> action = std::move(waiting_.front());
    waiting_.pop_front();
    action();
  }
}

void Process::StandStill(TimeUs until) {
  if (!alive_) return;
  network_->trace().Note(network_->time().now(), endpoint_, "stands still", generation_);
  stands_until_us_ = std::max(stands_until_us_, until);
}

bool Process::stands_still() const { return network_->time().now() < stands_until_us_; }

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
  AtServer([self = shared_from_this(), deliver = std::move(deliver)] {
    if (!self->given_up_) deliver();
  });
}

void Stream::Send(std::function<void()> deliver) {
  if (over_) return;
  if (network_->Happens(network_->scenario().break_chance)) return Break();
  const std::string& server = server_->endpoint();
  const std::string& client = client_->endpoint();
  if (network_->IsCut(server, client) || network_->IsCut(client, server)) return Break();
  const TimeUs delay = network_->TokenDelay();
  last_arrival_us_ = std::max(last_arrival_us_, Arrival(delay));
  network_->time().At(last_arrival_us_, [self = shared_from_this(), deliver = std::move(deliver)] {
    self->AtClient([self, deliver] {
      if (!self->client_done_ && !self->given_up_) deliver();
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

// Where both ends live and the network is back, the end that was told later learns it at once.
void Stream::FallSilent() {
  network_->time().At(network_->time().now() + network_->Keepalive(), [self = shared_from_this()] {
    Network& network = *self->network_;
    const TimeUs until_us = network.SilentUntil(self->client_->endpoint(), self->endpoint_);
    if (self->over_ || until_us == 0) return;
    network.NoteKeepalive();
    self->over_ = self->given_up_ = true;
    const TimeUs later_us = std::min(until_us, network.time().now() + network.Keepalive());
    const bool client_first = network.random().Chance(0.5);
    self->last_arrival_us_ = client_first ? 0 : later_us;
    self->last_arrival_at_server_us_ = client_first ? later_us : 0;
    self->TellClient(absl::UnavailableError("keepalive timeout"));
    self->TellServer();
  });
}

// Of what a silence holds up: after it, when it is sent again. An end that gave up says nothing.
TimeUs Stream::Arrival(TimeUs delay) const {
  const TimeUs now = network_->time().now();
  const TimeUs silent_until = network_->SilentUntil(client_->endpoint(), endpoint_);
  if (silent_until == 0 || given_up_) return now + delay;
  return silent_until + network_->random().Between(1, (silent_until - now) / 2 + 1);
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
  last_arrival_us_ = std::max(last_arrival_us_, Arrival(network_->Delay()));
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
  last = std::max(last, Arrival(network_->Delay()));
  network_->time().At(last, [self = shared_from_this(), action = std::move(action)] {
    if (self->server_->alive() && self->server_->generation() == self->server_generation_) {
      self->server_->WhenAwake(action);
    }
  });
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
  auto stream = std::make_shared<Stream>(this, client, endpoint, std::move(ended));
  streams_.push_back(stream);
  if (Refuses(client->endpoint(), endpoint)) {
    stream->Break();
    return stream;
  }
  if (Happens(scenario_.loss_chance) || IsCut(client->endpoint(), endpoint) ||
      IsCut(endpoint, client->endpoint())) {
    stream->Break();
    return stream;
  }
  TimeUs reached_us = time_->now() + Delay();
  if (const TimeUs silent_until = SilentUntil(client->endpoint(), endpoint); silent_until > 0) {
    reached_us += silent_until - time_->now();
    stream->FallSilent();
  }
  time_->At(reached_us, [this, stream, endpoint, accept = std::move(accept)] {
    if (stream->given_up()) return;
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

void Network::Refuse(const std::string& from, const std::string& to, TimeUs until) {
  trace_->Note(time_->now(), from, "is refused by", static_cast<uint64_t>(until));
  TimeUs& end = refusals_[{from, to}];
  end = std::max(end, until);
  for (const auto& weak : std::vector<std::weak_ptr<Stream>>(streams_)) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (stream != nullptr && stream->Runs(from, to)) stream->Break();
  }
  for (const auto& weak : std::vector<std::weak_ptr<Duplex>>(duplexes_)) {
    const std::shared_ptr<Duplex> stream = weak.lock();
    if (stream != nullptr && stream->Joins(from, to)) stream->Break();
  }
}

bool Network::Refuses(const std::string& from, const std::string& to) {
  if (refusals_.empty() || healed()) return false;
  const auto it = refusals_.find({from, to});
  if (it == refusals_.end() || it->second <= time_->now()) return false;
  ++connections_refused_;
  return true;
}

void Network::Silence(const std::string& client, const std::string& server, TimeUs until) {
  trace_->Note(time_->now(), client, "hears nothing of", static_cast<uint64_t>(until));
  TimeUs& end = silences_[{client, server}];
  end = std::max(end, until);
  for (const auto& weak : streams_) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (stream != nullptr && stream->Joins(client, server)) stream->FallSilent();
  }
}

TimeUs Network::SilentUntil(const std::string& client, const std::string& server) const {
  if (silences_.empty() || healed()) return 0;
  const auto it = silences_.find({client, server});
  if (it == silences_.end() || it->second <= time_->now()) return 0;
  return std::min(it->second, scenario_.heals_us);
}

TimeUs Network::Keepalive() {
  return random_->Between(300, 1000) * scenario_.time_scale * scheduler::kMillisecondUs;
}

std::shared_ptr<Duplex> Network::OpenDuplex(Process* client, const std::string& endpoint,
                                            Duplex::Accept accept,
                                            std::function<void(absl::Status)> ended) {
  auto stream = std::make_shared<Duplex>(this, client, endpoint, ++sessions_, std::move(ended));
  std::erase_if(duplexes_, [](const auto& weak) { return weak.expired(); });
  duplexes_.push_back(stream);
  if (Refuses(client->endpoint(), endpoint)) {
    stream->Break();
    return stream;
  }
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
