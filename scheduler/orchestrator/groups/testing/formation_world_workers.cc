// FormationWorld: the workers, and the feed between the members of an epoch.
#include <algorithm>

#include "scheduler/base/own_end_first.h"
#include "scheduler/orchestrator/groups/testing/formation_world.h"

namespace skein::scheduler::orchestrator {

// ---- a worker ----

void FormationWorld::Start() {
  workers_.emplace_back();
  Open(workers_.size() - 1, true);
}

// A stream begins: with a new registration, or the one that it has.
void FormationWorld::Open(size_t w, bool anew) {
  Worker& worker = workers_[w];
  if (worker.stream % 2 == 1) return;
  ++worker.stream;
  worker.up_us = std::max(worker.up_us, now_ + Delay());
  At(worker.up_us, [this, w, anew, stream = worker.stream, latest = LatestOf(worker)] {
    Worker& self = workers_[w];
    if (self.stream != stream) return;
    self.heard = true;
    self.down_us = now_;
    const bool registers = anew || self.id == InstanceId{};
    if (registers && self.id != InstanceId{}) LoseRegistration(self.id);
    if (registers) self.id = {++last_instance_};
    Ask([&](SwitchEffects* effects) { switch_->Reconnected(self.id, latest, now_, effects); });
    if (registers) RegroupSoon();
    const bool told = latest && self.part && latest->epoch == self.part->order.epoch;
    if (self.part && !self.part->bound && !self.part->committed && !told) {
      ++counts["untold"];
      EndPart(w, "it was not told of", false);
    }
  });
}

std::optional<FormationTold> FormationWorld::LatestOf(const Worker& worker) const {
  if (!worker.part || !worker.part->prepared) return worker.ended;
  return FormationTold{
      .epoch = worker.part->order.epoch,
      .phase = worker.part->bound ? FormationTold::Phase::kBound : FormationTold::Phase::kPrepared};
}

void FormationWorld::Tell(size_t w, const FormationTold& told) {
  Worker& worker = workers_[w];
  if (told.phase == FormationTold::Phase::kEnded) worker.ended = told;
  if (worker.stream % 2 == 0) return;
  worker.up_us = std::max(worker.up_us, now_ + Delay());
  At(worker.up_us, [this, w, told, stream = worker.stream] {
    Worker& self = workers_[w];
    if (self.stream != stream || !self.heard) return;
    Ask([&](SwitchEffects* effects) { switch_->Take(self.id, told, now_, effects); });
  });
}

void FormationWorld::TakePrepare(size_t w, const PrepareFormation& order) {
  Worker& worker = workers_[w];
  const bool refuses = worker.part || order.epoch <= worker.seen ||
                       worker.made < order.generation || (faults_ && Chance(3));
  worker.seen = std::max(worker.seen, order.epoch);
  if (refuses) {
    ++counts["refusals"];
    return Tell(w, {order.epoch, FormationTold::Phase::kEnded, absl::UnavailableError("no")});
  }
  worker.part = Part{};
  worker.part->order = order;
  const std::vector<size_t>& all = orders_.at(order.generation);
  worker.part->peers.assign(all.begin() + order.first, all.begin() + order.first + order.size);
  if (order.shared) {
    worker.part->mode = *order.shared;
    worker.part->serves = {SharedMode::kWas, *order.shared};  // reads need nothing of the owner
  }
  if (OwnEndFirst(order.own, worker.part->peers.front() == w)) {
    const bool too_long = faults_ && Chance(10);
    const TimeUs drain_us = too_long ? order.keep_us : static_cast<TimeUs>(Random(2 * kSecondUs));
    AtWorker(now_ + drain_us, w, [this, w, epoch = order.epoch] { BePrepared(w, epoch); });
  } else {
    BePrepared(w, order.epoch);
  }
  AtWorker(now_ + order.keep_us, w, [this, w, epoch = order.epoch] {
    Part* part = PartOf(w, epoch);
    if (part == nullptr || part->bound || part->committed) return;
    ++counts[part->order.shared ? "shares forgotten" : "forgotten"];
    EndPart(w, "no plan came", false);
  });
}

void FormationWorld::BePrepared(size_t w, uint64_t epoch) {
  Part* part = PartOf(w, epoch);
  if (part == nullptr) return;
  part->prepared = true;
  Tell(w, {epoch, FormationTold::Phase::kPrepared});
}

void FormationWorld::TakeCommit(size_t w, uint64_t epoch) {
  if (PartOf(w, epoch) == nullptr || !PartOf(w, epoch)->prepared) {
    return Tell(w, {epoch, FormationTold::Phase::kEnded, absl::NotFoundError("not prepared")});
  }
  if (PartOf(w, epoch)->order.shared) return EnterShared(w, epoch);
  AtWorker(now_ + static_cast<TimeUs>(Random(200'000)), w, [this, w, epoch] {
    Part* part = PartOf(w, epoch);
    if (part == nullptr || part->committed) return;
    part->committed = true;
    PlanStep(w, epoch);
  });
}

void FormationWorld::TakeEnd(size_t w, const EndFormation& order) {
  Part* part = PartOf(w, order.epoch);
  if (part == nullptr) return;
  const bool is_lead = part->peers.front() == w;
  if (!part->bound && !part->committed) return EndPart(w, "ordered", false);
  if (part->order.shared) return LeaveShared(w, order);
  if (order.how == Switch::kHard) return EndPart(w, "ordered, hard", true);
  if (!is_lead || std::exchange(part->draining, true)) return;
  if (faults_ && Chance(20)) return;  // its sequences are too long
  const auto drain_us = static_cast<TimeUs>(Random(2 * kSecondUs));
  AtWorker(now_ + drain_us, w, [this, w, epoch = order.epoch] {
    if (PartOf(w, epoch) != nullptr) EndPart(w, "drained", true);
  });
}

void FormationWorld::EndPart(size_t w, const std::string& why, bool tell_peers) {
  const Part part = *std::exchange(workers_[w].part, std::nullopt);
  const uint64_t epoch = part.order.epoch;
  const bool is_lead = part.peers.front() == w;
  for (const size_t peer : part.peers) {
    if (!tell_peers || peer == w || !(is_lead || peer == part.peers.front())) continue;
    SendFeed(w, peer, epoch, Feed::kEnd, 0);
  }
  Tell(w, {epoch, FormationTold::Phase::kEnded, absl::CancelledError(why)});
}

// ---- shared weights ----

void FormationWorld::EnterShared(size_t w, uint64_t epoch) {
  Part* part = PartOf(w, epoch);
  if (std::exchange(part->committed, true)) return;
  AtWorker(now_ + static_cast<TimeUs>(Random(kStepUs)), w, [this, w, epoch] {
    Part* entered = PartOf(w, epoch);
    if (entered == nullptr) return;
    entered->bound = true;
    Tell(w, {epoch, FormationTold::Phase::kBound, absl::OkStatus(), 1'000, 1'000});
  });
}

void FormationWorld::LeaveShared(size_t w, const EndFormation& order) {
  Part* part = PartOf(w, order.epoch);
  const bool hard = order.how == Switch::kHard;
  if (!hard && std::exchange(part->draining, true)) return;
  if (!hard && faults_ && Chance(20)) return;  // its sequences are too long
  const auto longest = static_cast<uint64_t>(hard ? 3 * kStepUs : 2 * kSecondUs);
  AtWorker(now_ + static_cast<TimeUs>(Random(longest)), w, [this, w, epoch = order.epoch] {
    if (PartOf(w, epoch) != nullptr) EndPart(w, "it has its weights back", false);
  });
}

void FormationWorld::TakeMode(size_t w, const OrderMode& order) {
  Part* part = PartOf(w, order.epoch);
  if (part == nullptr || order.turn < part->turn) return;
  const bool refuses = faults_ && Chance(3) && order.act == OrderMode::Act::kReady;
  if (order.turn > part->turn && order.act == OrderMode::Act::kSet) Wrong("it was not ready");
  part->turn = order.turn;
  switch (order.act) {
    case OrderMode::Act::kReady:
      if (refuses) {
        return TellMode(
            w, {order.epoch, order.turn, ModeTold::Phase::kRefused, absl::UnavailableError("no")});
      }
      part->serves.insert(order.mode);
      return TellMode(w, {order.epoch, order.turn, ModeTold::Phase::kReady});
    case OrderMode::Act::kSet:
      return AtWorker(now_ + static_cast<TimeUs>(Random(kStepUs)), w,
                      [this, w, order] { ChangeMode(w, order); });
    case OrderMode::Act::kDrop:
      return;
  }
}

void FormationWorld::ChangeMode(size_t w, const OrderMode& order) {
  Part* part = PartOf(w, order.epoch);
  if (part == nullptr || part->turn != order.turn) return;
  part->mode = order.mode;
  TellMode(w, {order.epoch, order.turn, ModeTold::Phase::kSet});
}

void FormationWorld::TellMode(size_t w, const ModeTold& told) {
  Worker& worker = workers_[w];
  if (worker.stream % 2 == 0) return;
  worker.up_us = std::max(worker.up_us, now_ + Delay());
  At(worker.up_us, [this, w, told, stream = worker.stream] {
    Worker& self = workers_[w];
    if (self.stream != stream || !self.heard) return;
    Ask([&](SwitchEffects* effects) { switch_->Take(self.id, told, now_, effects); });
  });
}

// ---- the feed ----

FormationWorld::Part* FormationWorld::PartOf(size_t w, uint64_t epoch) {
  std::optional<Part>& part = workers_[w].part;
  return part && part->order.epoch == epoch ? &*part : nullptr;
}

void FormationWorld::SendFeed(size_t from, size_t to, uint64_t epoch, Feed message, uint64_t step) {
  TimeUs& link_us = links_us_[{from, to}];
  link_us = std::max(link_us, now_ + 1 + static_cast<TimeUs>(Random(2'000)));
  AtWorker(link_us, to,
           [this, from, to, epoch, message, step] { TakeFeed(from, to, epoch, message, step); });
}

void FormationWorld::TakeFeed(size_t from, size_t to, uint64_t epoch, Feed message, uint64_t step) {
  if (message == Feed::kPlan) return TakePlan(from, to, epoch, step);
  if (message == Feed::kReady) return TakeReady(from, to, epoch, step);
  const Part* part = PartOf(to, epoch);
  if (part == nullptr) return;
  EndPart(to, "the feed has ended", part->peers.front() == to);
}

void FormationWorld::TakePlan(size_t from, size_t to, uint64_t epoch, uint64_t step) {
  Part* part = PartOf(to, epoch);
  if (part == nullptr || !part->prepared) return SendFeed(to, from, epoch, Feed::kEnd, 0);
  part->step = step;
  if (!std::exchange(part->bound, true)) {
    Tell(to, {epoch, FormationTold::Phase::kBound, absl::OkStatus(), 2'000, 1'000});
  }
  SendFeed(to, from, epoch, Feed::kReady, step);
  AtWorker(now_ + 2 * kAnswerUs, to, [this, to, epoch, step] {
    const Part* held = PartOf(to, epoch);
    if (held != nullptr && held->step == step) EndPart(to, "no further plan came", true);
  });
}

void FormationWorld::TakeReady(size_t from, size_t to, uint64_t epoch, uint64_t step) {
  Part* part = PartOf(to, epoch);
  if (part == nullptr || part->step != step) return;
  part->ready.insert(from);
  if (part->ready.size() + 1 < part->peers.size()) return;
  if (!std::exchange(part->bound, true)) {
    Tell(to, {epoch, FormationTold::Phase::kBound, absl::OkStatus(), 3'000, 1'500});
  }
  AtWorker(now_ + kAnswerUs / 2, to, [this, to, epoch] {
    if (PartOf(to, epoch) != nullptr) PlanStep(to, epoch);
  });
}

void FormationWorld::PlanStep(size_t lead, uint64_t epoch) {
  Part* part = PartOf(lead, epoch);
  part->ready.clear();
  const uint64_t step = ++part->step;
  for (const size_t peer : part->peers) {
    if (peer != lead) SendFeed(lead, peer, epoch, Feed::kPlan, step);
  }
  AtWorker(now_ + kAnswerUs, lead, [this, lead, epoch, step] {
    const Part* held = PartOf(lead, epoch);
    if (held == nullptr || held->step != step || held->ready.size() + 1 == held->peers.size()) {
      return;
    }
    EndPart(lead, "a member did not answer", true);
  });
}

}  // namespace skein::scheduler::orchestrator
