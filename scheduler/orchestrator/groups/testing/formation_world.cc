#include "scheduler/orchestrator/groups/testing/formation_world.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

FormationWorld::FormationWorld(uint64_t seed, size_t workers)
    : random_(seed), delay_us_(Chance(25) ? 300'000 : 5'000), faults_percent_(10 + Random(60)) {
  Restart();
  for (size_t i = 0; i < workers; ++i) Start();
  RunFor(2 * kSecondUs);
}

void FormationWorld::AtWorker(TimeUs at, size_t worker, std::function<void()> what) {
  At(at, [this, worker, what = std::move(what)] {
    const Worker& self = workers_[worker];
    if (!self.alive) return;
    if (self.paused_us > now_) return AtWorker(self.paused_us, worker, what);
    what();
  });
}

void FormationWorld::RunFor(TimeUs duration) {
  const TimeUs end_us = now_ + duration;
  for (;;) {
    const TimeUs next_event = events_.empty() ? kNever : events_.begin()->first.first;
    const TimeUs next_tick = switch_->NextDeadline();
    if (std::min(next_event, next_tick) > end_us) break;
    now_ = std::max(now_, std::min(next_event, next_tick));
    if (next_tick <= next_event) {
      Ask([&](SwitchEffects* effects) { switch_->Tick(now_, effects); });
    } else {
      const std::function<void()> what = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      what();
    }
    CheckHalves();
    CheckModes();
    if (errors.size() > 5) return;
  }
  now_ = end_us;
}

void FormationWorld::RunWithFaults(TimeUs duration) {
  faults_ = true;
  const TimeUs end_us = now_ + duration;
  while (now_ < end_us && errors.empty()) {
    RunFor(static_cast<TimeUs>(Random(800'000)));
    SwitchAtRandom();
    if (Chance(faults_percent_)) FaultAtRandom();
  }
}

void FormationWorld::Heal() {
  faults_ = false;
  delay_us_ = 5'000;
  RunFor(kHealUs);
}

// ---- the orchestrator ----

void FormationWorld::Ask(const std::function<void(SwitchEffects*)>& call) {
  SwitchEffects effects;
  call(&effects);
  if (const absl::Status ok = switch_->CheckInvariants(); !ok.ok()) Wrong(ok.ToString());
  Carry(effects);
}

absl::StatusOr<uint64_t> FormationWorld::Bind(const Subset& subset, OwnSequences own) {
  absl::StatusOr<uint64_t> epoch;
  Ask([&](SwitchEffects* effects) { epoch = switch_->Bind(subset, "asked", now_, effects, own); });
  if (epoch.ok()) calls_[*epoch];
  return epoch;
}

absl::StatusOr<uint64_t> FormationWorld::Share(const Subset& subset, SharedMode mode) {
  absl::StatusOr<uint64_t> epoch;
  Ask([&](SwitchEffects* effects) {
    epoch = switch_->Share(subset, mode, "asked", now_, effects);
  });
  if (epoch.ok()) calls_[*epoch];
  return epoch;
}

absl::Status FormationWorld::SetMode(uint64_t epoch, SharedMode mode) {
  absl::Status set;
  Ask([&](SwitchEffects* effects) {
    set = switch_->SetMode(epoch, mode, "asked", now_, effects);
    if (set.ok()) ++turns_[epoch];
  });
  return set;
}

absl::Status FormationWorld::Release(InstanceId member, Switch how) {
  absl::Status released;
  Ask([&](SwitchEffects* effects) {
    released = switch_->Release(member, how, "asked", now_, effects);
  });
  return released;
}

void FormationWorld::Carry(const SwitchEffects& effects) {
  for (const SwitchEffect& effect : effects) {
    if (const auto* prepare = std::get_if<SendPrepare>(&effect)) {
      if (prepare->order.epoch < last_prepared_) Wrong("an epoch is older than one before");
      last_prepared_ = prepare->order.epoch;
      ToWorker(prepare->to, [this, order = prepare->order](size_t w) { TakePrepare(w, order); });
    } else if (const auto* commit = std::get_if<SendCommit>(&effect)) {
      ToWorker(commit->to, [this, epoch = commit->order.epoch](size_t w) { TakeCommit(w, epoch); });
    } else if (const auto* end = std::get_if<SendEnd>(&effect)) {
      ToWorker(end->to, [this, order = end->order](size_t w) { TakeEnd(w, order); });
    } else if (const auto* mode = std::get_if<SendMode>(&effect)) {
      ToWorker(mode->to, [this, order = mode->order](size_t w) { TakeMode(w, order); });
    } else if (const auto* changed = std::get_if<ModeChanged>(&effect)) {
      NoteChanged(*changed);
    } else {
      NoteEnded(std::get<SwitchEnded>(effect));
    }
  }
}

void FormationWorld::NoteChanged(const ModeChanged& changed) {
  ++counts["mode " + std::string(NameOf(changed.outcome))];
  if (--turns_[changed.epoch] != 0) Wrong("a turn has an end too many");
}

void FormationWorld::NoteEnded(const SwitchEnded& ended) {
  const std::string kind =
      ended.shared ? (ended.to > 1 ? "share " : "unshare ") : (ended.to > 1 ? "bind " : "release ");
  ++counts[kind + std::string(NameOf(ended.outcome))];
  if (!ended.shared)
    ++counts["own " + std::string(ToString(ended.own)) + " " + std::string(NameOf(ended.outcome))];
  if (!ended.unanswered.empty()) ++counts["unanswered"];
  std::vector<SwitchEnded>& before = calls_[ended.epoch];
  const bool is_bind = ended.to > 1;
  const bool fits =
      is_bind ? before.empty() : before.size() == 1 && before[0].outcome == SwitchOutcome::kDone;
  if (!fits) Wrong(absl::StrCat("epoch ", ended.epoch, " has an end too many"));
  before.push_back(ended);
  last_ended_ = ended;
}

void FormationWorld::ToWorker(InstanceId to, const std::function<void(size_t worker)>& deliver) {
  for (size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    if (worker.id != to || !worker.heard) continue;
    worker.down_us = std::max(worker.down_us, now_ + Delay());
    AtWorker(worker.down_us, w, [this, w, deliver, stream = worker.stream] {
      if (workers_[w].stream == stream) deliver(w);
    });
  }
}

void FormationWorld::Restart() {
  ++orchestrators_;
  epochs_ = {};
  epochs_.BeginAt(FirstNumberOf(orchestrators_));
  switch_ = std::make_unique<FormationSwitch>(kLimits, &epochs_);
  calls_.clear();
  turns_.clear();
  for (size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    worker.id = {};
    if (!worker.alive) continue;
    if (worker.stream % 2 == 1) ++worker.stream;
    worker.heard = false;
    AtWorker(now_ + static_cast<TimeUs>(Random(kSecondUs)), w, [this, w] { Open(w, true); });
  }
}

void FormationWorld::LoseRegistration(InstanceId id) {
  if (id == InstanceId{}) return;
  for (Worker& worker : workers_) {
    if (worker.id == id) worker.id = {};
  }
  Ask([&](SwitchEffects* effects) { switch_->Left(id, now_, effects); });
  RegroupSoon();
}

void FormationWorld::RegroupSoon() {
  if (std::exchange(regroups_, true)) return;
  At(now_ + kSettleUs, [this] {
    regroups_ = false;
    Regroup();
  });
}

void FormationWorld::Regroup() {
  std::map<InstanceId, size_t> members;
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w].id != InstanceId{}) members[workers_[w].id] = w;
  }
  GroupOrder order = {.generation = ++last_generation_};
  for (const auto& [id, w] : members) {
    order.members.push_back({id, ""});
    orders_[order.generation].push_back(w);
    const TimeUs made_us = now_ + Delay() + static_cast<TimeUs>(Random(kSecondUs / 2));
    AtWorker(made_us, w, [this, w = w, generation = order.generation] {
      workers_[w].made = std::max(workers_[w].made, generation);
    });
  }
  Ask([&](SwitchEffects* effects) { switch_->Regrouped(order, now_, effects); });
}

void FormationWorld::SwitchAtRandom() {
  const std::vector<GroupMember>& members = switch_->order().members;
  if (members.empty()) return;
  if (Chance(30)) ChangeModeAtRandom();
  if (Chance(40)) {
    const InstanceId member = members[Random(members.size())].instance;
    const Switch how = Chance(50) ? Switch::kSequential : Switch::kHard;
    if (Release(member, how).ok()) ++counts["releases"];
    return;
  }
  Subset subset = {static_cast<int32_t>(Random(members.size())), int32_t{1} << (1 + Random(3))};
  while (subset.size > static_cast<int32_t>(members.size()) && Chance(95)) subset.size /= 2;
  if (Chance(95)) subset.first -= subset.first % subset.size;
  const bool shares = Chance(40);
  const absl::Status bound = shares ? Share(subset, static_cast<SharedMode>(Random(2))).status()
                                    : Bind(subset, static_cast<OwnSequences>(Random(4))).status();
  ++counts[shares && bound.ok() ? "shares"
           : bound.ok()         ? "binds"
                        : absl::StrCat("refused: ", absl::StatusCodeToString(bound.code()))];
}

void FormationWorld::ChangeModeAtRandom() {
  if (switch_->live().empty()) return;
  auto it = switch_->live().begin();
  std::advance(it, static_cast<std::ptrdiff_t>(Random(switch_->live().size())));
  const auto mode = static_cast<SharedMode>(Random(2));
  ++counts[SetMode(it->first, mode).ok() ? "modes" : "modes refused"];
}

// ---- faults ----

void FormationWorld::FaultAtRandom() {
  const size_t w = Random(workers_.size());
  if (Chance(4)) {
    ++counts["restarts"];
    return Restart();
  }
  if (!workers_[w].alive) return;
  switch (Random(4)) {
    case 0:
      ++counts["deaths"];
      return Die(w);
    case 1:
      ++counts["cuts"];
      return Cut(w, static_cast<TimeUs>(Random(kSecondUs)));
    case 2:
      ++counts["long cuts"];
      return Cut(w, kLeaseUs + static_cast<TimeUs>(Random(kSecondUs)));
    default:
      ++counts["pauses"];
      workers_[w].paused_us = now_ + static_cast<TimeUs>(Random(kPauseUs));
  }
}

void FormationWorld::Cut(size_t w, TimeUs pause_us) {
  Worker& worker = workers_[w];
  if (worker.stream % 2 == 0) return;
  ++worker.stream;
  worker.heard = false;
  const InstanceId id = worker.id;
  const bool lost = pause_us >= kLeaseUs;
  if (lost) {
    At(now_ + kLeaseUs, [this, w, id, stream = worker.stream] {
      const bool came_back = workers_[w].stream != stream;  // what an earlier fault had put off
      if (workers_[w].id == id && !came_back) LoseRegistration(id);
    });
  }
  AtWorker(now_ + pause_us, w, [this, w, lost] { Open(w, lost); });
}

void FormationWorld::Die(size_t w) {
  Worker& worker = workers_[w];
  worker.alive = false;
  worker.heard = false;
  worker.stream += worker.stream % 2;
  const std::optional<Part> part = std::exchange(worker.part, std::nullopt);
  At(now_ + static_cast<TimeUs>(Random(kLeaseUs)),
     [this, id = worker.id] { LoseRegistration(id); });
  At(now_ + static_cast<TimeUs>(Random(2 * kLeaseUs)), [this] { Start(); });
  if (!part || part->order.shared || !(part->bound || part->committed)) return;
  for (const size_t peer : part->peers) {  // they see their links to it break
    AtWorker(now_ + static_cast<TimeUs>(Random(kAnswerUs)), peer,
             [this, peer, epoch = part->order.epoch] {
               Part* held = PartOf(peer, epoch);
               if (held != nullptr && (held->bound || held->committed)) {
                 EndPart(peer, "a member died", true);
               }
             });
  }
}

// ---- what has to hold ----

void FormationWorld::Wrong(std::string what) {
  errors.push_back(absl::StrCat("at ", now_, " us: ", what));
}

// Nobody is bound for long while another member of the epoch does not hold it.
void FormationWorld::CheckHalves() {
  std::set<uint64_t> halves;
  for (const Worker& worker : workers_) {
    if (!worker.part || !worker.part->bound || worker.part->order.shared) continue;
    const uint64_t epoch = worker.part->order.epoch;
    for (const size_t peer : worker.part->peers) {
      if (PartOf(peer, epoch) == nullptr) halves.insert(epoch);
    }
  }
  std::erase_if(half_since_us_, [&](const auto& entry) { return !halves.contains(entry.first); });
  for (const uint64_t epoch : halves) {
    const TimeUs since_us = half_since_us_.try_emplace(epoch, now_).first->second;
    if (now_ - since_us > kHalfUs) Wrong(absl::StrCat("half of epoch ", epoch, " is bound"));
  }
}

// Who shares its weights works in a mode that all others of its epoch serve. Whether they hold the
// epoch still, or have died, is no matter: they serve until the next one, and nobody serves it
// then.
void FormationWorld::CheckModes() {
  for (const Worker& worker : workers_) {
    if (!worker.part || !worker.part->order.shared || !worker.part->bound) continue;
    for (const size_t peer : worker.part->peers) {
      const Part* part = PartOf(peer, worker.part->order.epoch);
      if (part == nullptr || part->serves.contains(worker.part->mode)) continue;
      Wrong(absl::StrCat("instance ", worker.id.value, " works in ", ToString(worker.part->mode),
                         ", which instance ", workers_[peer].id.value, " does not serve"));
    }
  }
}

void FormationWorld::CheckSettled() {
  if (switch_->NextDeadline() != kNever) Wrong("something is still awaited");
  if (!switch_->strays().empty()) Wrong("there are strays");
  std::map<InstanceId, uint64_t> bound;
  for (const auto& [epoch, live] : switch_->live()) {
    for (const InstanceId member : live.members) bound[member] = epoch;
  }
  for (const Worker& worker : workers_) {
    if (!worker.alive) continue;
    const auto epoch = bound.find(worker.id);
    const uint64_t wanted = epoch == bound.end() ? 0 : epoch->second;
    const uint64_t holds = worker.part ? worker.part->order.epoch : 0;
    if (holds != wanted || (worker.part && !worker.part->bound)) {
      Wrong(absl::StrCat("instance ", worker.id.value, " holds epoch ", holds, ", not ", wanted));
    }
  }
  for (const auto& [epoch, open] : turns_) {
    if (open != 0) Wrong(absl::StrCat("a turn of epoch ", epoch, " was not answered"));
  }
  for (const auto& [epoch, live] : switch_->live()) {
    for (const Worker& worker : workers_) {
      const bool differs = worker.alive && worker.part && worker.part->order.epoch == epoch &&
                           live.mode && worker.part->mode != *live.mode;
      if (differs) Wrong(absl::StrCat("instance ", worker.id.value, " works in another mode"));
    }
  }
  for (const auto& [epoch, ends] : calls_) {
    const bool is_done = !ends.empty() && ends[0].outcome == SwitchOutcome::kDone;
    const size_t awaited = is_done && !switch_->live().contains(epoch) ? 2 : 1;
    if (ends.size() != awaited) Wrong(absl::StrCat("epoch ", epoch, " was not answered"));
  }
}

absl::StatusOr<uint64_t> FormationWorld::BindWidest() {
  const auto members = static_cast<uint32_t>(switch_->order().members.size());
  return Bind({0, static_cast<int32_t>(std::bit_floor(members))}, OwnSequences::kShare);
}

absl::StatusOr<uint64_t> FormationWorld::ShareWidest(SharedMode mode) {
  const auto members = static_cast<uint32_t>(switch_->order().members.size());
  return Share({0, static_cast<int32_t>(std::bit_floor(members))}, mode);
}

size_t FormationWorld::Sharing(SharedMode mode) const {
  return static_cast<size_t>(
      std::count_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
        return worker.part && worker.part->bound && worker.part->order.shared &&
               worker.part->mode == mode;
      }));
}

void FormationWorld::ReleaseAll(Switch how) {
  std::vector<InstanceId> leads;
  for (const auto& [epoch, live] : switch_->live()) leads.push_back(live.members.front());
  for (const InstanceId lead : leads) {
    if (const absl::Status ok = Release(lead, how); !ok.ok()) Wrong(ok.ToString());
  }
}

size_t FormationWorld::bound() const {
  return static_cast<size_t>(
      std::count_if(workers_.begin(), workers_.end(),
                    [](const Worker& worker) { return worker.part && worker.part->bound; }));
}

size_t FormationWorld::workers() const {
  return static_cast<size_t>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.alive; }));
}

}  // namespace skein::scheduler::orchestrator
