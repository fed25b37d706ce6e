#include "tests/sim/candidate.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace skein::sim {

using namespace scheduler;  // NOLINT: the election's events and effects

namespace {

constexpr int64_t kReadUnits = 100;  // between two looks at the store, beside its news

TimeUs UnitUs(const Network& network) { return network.scenario().time_scale * kMillisecondUs; }

}  // namespace

Candidate::Candidate(Network* network, Process* process, Hooks hooks)
    : network_(network),
      process_(process),
      hooks_(std::move(hooks)),
      core_(network->scenario().leader_lease_ms * UnitUs(*network)) {}

void Candidate::Handle(const ElectionEvent::Any& event) {
  for (const auto& effect : core_.Handle(event, process_->LocalNow())) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  Arm();
  if (resigned_ == nullptr || !core_.Ended()) return;
  process_->After(0, std::exchange(resigned_, nullptr));
}

void Candidate::Resign(std::function<void()> ended) {
  resigned_ = std::move(ended);
  Handle(ElectionEvent::Resign{});
}

void Candidate::Arm() {
  const TimeUs next = core_.NextDeadline();
  if (next == armed_us_) return;
  armed_us_ = next;
  if (next == kNever) return;
  process_->After(std::max<TimeUs>(next - process_->LocalNow(), 1), [this, next] {
    if (armed_us_ != next) return;
    armed_us_ = kNever;
    Handle(ElectionEvent::Tick{});
  });
}

void Candidate::ClockJumped() {
  armed_us_ = kNever;
  Arm();
}

void Candidate::Take(const StoreNews& news) {
  if (news.view.revision >= news_revision_) {
    news_revision_ = news.view.revision;
    leader_ = news.leader == process_->endpoint() ? "" : news.leader;
  }
  Handle(ElectionEvent::Seen{news.view});
}

// As a store's watch: it reads again what it may have missed.
void Candidate::ReadStore() {
  const TimeUs pause_us = kReadUnits * UnitUs(*network_);
  network_->Call<StoreReply>(
      process_, kStore, pause_us,
      [](Process* store, const std::function<void(StoreReply)>& answer) {
        answer({.news = static_cast<StoreProcess*>(store)->News()});
      },
      [this, pause_us](const StoreReply& reply) {
        if (reply.status.ok()) {
          Take(reply.news);
        } else {
          Handle(ElectionEvent::Unseen{});
        }
        process_->After(reply.status.ok() ? pause_us : pause_us / 2, [this] { ReadStore(); });
      });
}

void Candidate::StepAside() {
  process_->After(0, [this] { Handle(ElectionEvent::StepAside{}); });
}

void Candidate::Heard() {
  if (core_.StandsAside()) process_->After(0, [this] { Handle(ElectionEvent::Heard{}); });
}

void Candidate::Raise(uint64_t generation) {
  process_->After(0, [this, generation] { Handle(ElectionEvent::Raise{generation}); });
}

template <class Call>
void Candidate::Do(const Call& call) {
  network_->Call<StoreReply>(
      process_, kStore, call.timeout_us,
      [call, caller = process_->endpoint()](Process* store,
                                            const std::function<void(StoreReply)>& answer) {
        answer(static_cast<StoreProcess*>(store)->Handle(call, caller));
      },
      [this](const StoreReply& reply) {
        Handle(reply.status.ok() ? reply.event : ElectionEvent::Failed{ElectionFailure::kUnknown});
      });
}

void Candidate::Do(const ElectionEffect::Led& effect) {
  network_->trace().Note(network_->time().now(), process_->endpoint(), "leads", effect.generation);
  hooks_.led(effect.generation);
}

void Candidate::Do(const ElectionEffect::Lost&) {
  network_->trace().Note(network_->time().now(), process_->endpoint(), "leads no longer",
                         core_.generation());
  hooks_.lost();
}

}  // namespace skein::sim
