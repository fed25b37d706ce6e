#include "tests/sim/duplex.h"

#include <algorithm>
#include <utility>

#include "tests/sim/network.h"

namespace skein::sim {

Duplex::Duplex(Network* network, Process* client, std::string server, uint64_t session,
               std::function<void(absl::Status)> ended)
    : network_(network) {
  ends_[kClient] = {.endpoint = client->endpoint(),
                    .process = client,
                    .generation = client->generation(),
                    .ended = std::move(ended)};
  ends_[kServer].endpoint = std::move(server);
  ends_[kServer].counters = services::MessageCounters(session);
}

MessageNumbers Duplex::Stamp(Side from) {
  MessageNumbers numbers;
  ends_[from].counters.Stamp(&numbers, network_->time().now());
  return numbers;
}

void Duplex::Take(Side to, const MessageNumbers& numbers) {
  network_->NoteMalformed(ends_[to].counters.Take(numbers, network_->time().now()));
}

void Duplex::Open(Accept accept) {
  Push(kServer, [this, accept = std::move(accept), numbers = Stamp(kClient)] {
    End& end = ends_[kServer];
    end.process = network_->Find(end.endpoint);
    if (end.process == nullptr) return Break();
    end.generation = end.process->generation();
    if (network_->Happens(network_->scenario().stream_refusal_chance)) {
      return Close(kServer, absl::ResourceExhaustedError("the inbox is full"));
    }
    end.process->WhenAwake([self = shared_from_this(), accept, numbers] {
      self->Take(kServer, numbers);
      accept(self->ends_[kServer].process, self);
    });
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
  Push(to, [this, to, deliver = std::move(deliver), numbers = Stamp(from)] {
    At(to, [self = shared_from_this(), to, deliver, numbers] {
      if (self->ends_[to].done) return;
      self->Take(to, numbers);
      deliver();
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
  LoseSome(other);
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
    const TimeUs told_us =
        network_->time().now() + (waits ? network_->Keepalive() : network_->Delay());
    LearnAt(std::max(told_us, ends_[side].last_arrival_us), side);
  }
}

void Duplex::Starve() {
  for (const Side side : {kClient, kServer}) {
    network_->time().At(network_->time().now() + network_->Keepalive(),
                        [self = shared_from_this(), side] {
                          const std::string& client = self->ends_[kClient].endpoint;
                          const std::string& server = self->ends_[kServer].endpoint;
                          const Network& network = *self->network_;
                          if (network.IsCut(client, server) || network.IsCut(server, client))
                            self->GiveUp(side);
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
    LearnAt(network_->time().now() + network_->Keepalive(), other);
  }
}

}  // namespace skein::sim
