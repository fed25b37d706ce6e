#include "tests/sim/joint_steps.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

using scheduler::kMillisecondUs;
using scheduler::RingKind;
using scheduler::RingPart;
using scheduler::StepDone;

namespace {

// Longer than the orchestrator takes to cancel a plan at members that one has left or refused.
constexpr TimeUs kRingLastsUs = 1000 * kMillisecondUs;

// The others need what it would have sent.
bool AnyHangs(const std::map<int, JointSteps::Entrant>& entrants) {
  return std::any_of(entrants.begin(), entrants.end(),
                     [](const auto& entry) { return entry.second.thread->hangs; });
}

}  // namespace

void JointSteps::Make(const Process* process, const scheduler::OpenRing& group) {
  const auto [it, fresh] = opened_.try_emplace({process, group.group},
                                               Made{group.key, group.rank, group.comm_addresses});
  verdict_->Require(fresh, "a group is made over another one");
}

void JointSteps::Drop(const Process* process, scheduler::RingKind group) {
  verdict_->Require(opened_.erase({process, group}) == 1, "a group is dropped that was not made");
}

void JointSteps::CheckGroups(const Entrant& entrant) const {
  const RingPart& part = PartOf(entrant);
  const auto all = static_cast<int>(part.comm_addresses.size());
  // Of the ranks from first on.
  const auto has = [&](scheduler::RingKind group, GroupId key, int first, int ranks) {
    const auto it = opened_.find({entrant.process, group});
    if (it == opened_.end()) return false;
    const Made& made = it->second;
    verdict_->Require(!made.broken, "a member enters a group that it has broken");
    return made.key == key && made.rank == part.rank - first &&
           std::equal(made.comm_addresses.begin(), made.comm_addresses.end(),
                      part.comm_addresses.begin() + first,
                      part.comm_addresses.begin() + first + ranks);
  };
  const bool together = all > 1;
  const bool moves = together && !part.piece.moves.empty();
  const int first = part.rank / part.tp * part.tp;
  verdict_->Require(has(RingKind::kPieces, part.group, 0, all) == together,
                    "a step lacks its group");
  verdict_->Require(has(RingKind::kMoves, part.moves_group, 0, all) == moves,
                    "a step lacks its group for moves");
  verdict_->Require(has(RingKind::kTensor, part.tensor_group, first, part.tp) == (part.tp > 1),
                    "a step lacks its tensor group");
}

void JointSteps::Enter(Entrant entrant) {
  CheckGroups(entrant);
  const RingPart& part = PartOf(entrant);
  const int rank = part.rank;
  const Key key{part.group, part.piece.index};
  std::shared_ptr<Meeting> meeting = meetings_[key];
  if (meeting == nullptr) {
    meeting = meetings_[key] = std::make_shared<Meeting>();
    meeting->key = key;
    meeting->size = part.piece.members.size();
  }
  if (meeting->entrants.count(rank) > 0) {
    return verdict_->Violated("a rank enters a piece twice");
  }
  Process* process = entrant.process;
  entrant.thread->busy = true;
  const TimeUs patience = part.deadline_us - process->LocalNow();
  meeting->entrants.emplace(rank, std::move(entrant));
  process->After(std::max<TimeUs>(patience, 1), [this, meeting, rank] {
    if (meeting->entrants.at(rank).over) return;
    CheckDeadline(*meeting, rank);
    EndAfter(0, meeting, rank, absl::DeadlineExceededError("the members did not come in time"));
    Break(meeting, "a member's deadline passed");
  });
  meeting->broken = meeting->broken || refused_.count(part.group) > 0;
  if (meeting->broken) {
    if (!network_->Happens(network_->scenario().word_loss_chance)) {
      EndAfter(network_->random().Between(0, 5) * kMillisecondUs, meeting, rank,
               absl::UnavailableError("the group is broken"));
    }
    return;
  }
  CheckSamePiece(*meeting);
  if (meeting->entrants.size() == meeting->size) return Begin(meeting);
  if (!InRing(*meeting)) return;
  VirtualTime& time = network_->time();
  time.At(time.now() + kRingLastsUs, [this, meeting] {
    verdict_->Require(!InRing(*meeting), "members of ring steps wait for one another in a ring");
  });
}

// A request's own deadline, or its client, may end a step early; ring_step_us may not.
void JointSteps::CheckDeadline(const Meeting& meeting, int rank) {
  if (!network_->scenario().faultless || !Waits(meeting)) return;
  const Entrant& entrant = meeting.entrants.at(rank);
  if (SequenceOf(entrant).spec->deadline_us > 0) return;
  verdict_->Violated("without faults a ring step waits until its deadline");
}

std::vector<const JointSteps::Meeting*> JointSteps::WaitedFor(const Meeting& meeting) const {
  std::vector<const Meeting*> others;
  const std::vector<std::string>& addresses =
      PartOf(meeting.entrants.begin()->second).comm_addresses;
  for (size_t i = 0; i < meeting.size; ++i) {
    const int rank = static_cast<int>(i);
    if (meeting.entrants.count(rank) > 0) continue;
    if (refusers_.count({meeting.key.first, rank}) > 0) continue;  // will never come
    for (const auto& [key, other] : meetings_) {
      const bool there =
          std::any_of(other->entrants.begin(), other->entrants.end(), [&](const auto& entry) {
            return !entry.second.over &&
                   PartOf(entry.second).comm_addresses[entry.first] == addresses[i];
          });
      if (there && Waits(*other)) others.push_back(other.get());
    }
  }
  return others;
}

bool JointSteps::InRing(const Meeting& meeting) const {
  if (!Waits(meeting) || meeting.entrants.size() == meeting.size) return false;
  std::set<const Meeting*> seen;
  std::vector<const Meeting*> next = WaitedFor(meeting);
  while (!next.empty()) {
    const Meeting* other = next.back();
    next.pop_back();
    if (other == &meeting) return true;
    if (!seen.insert(other).second) continue;
    for (const Meeting* further : WaitedFor(*other)) next.push_back(further);
  }
  return false;
}

void JointSteps::CheckSamePiece(const Meeting& meeting) {
  const Entrant& first = meeting.entrants.begin()->second;
  for (const auto& [rank, other] : meeting.entrants) {
    if (!(PartOf(other).piece == PartOf(first).piece)) {
      verdict_->Violated("members are in different pieces");
    }
    if (PartOf(other).tp != PartOf(first).tp) verdict_->Violated("members have different tp");
    if (PartOf(other).comm_addresses[rank] !=
        absl::StrCat(other.process->endpoint(), "#", other.process->generation())) {
      verdict_->Violated("a member is not who the plan says");
    }
  }
}

// Of a whole meeting: each tensor group is of one node.
void JointSteps::CheckNodes(const Meeting& meeting) const {
  const auto node_of = [&](int rank) {
    const Process& process = *meeting.entrants.at(rank).process;
    return NodeOfPrefill(network_->scenario(), NumberOfWorker(process.endpoint()));
  };
  for (const auto& [rank, entrant] : meeting.entrants) {
    const int first = rank / PartOf(entrant).tp * PartOf(entrant).tp;
    verdict_->Require(node_of(rank) == node_of(first), "a tensor group is of several nodes");
  }
}

void JointSteps::Begin(std::shared_ptr<Meeting> meeting) {
  CheckNodes(*meeting);
  meeting->running = true;
  int64_t slowness = 1;
  for (const auto& [rank, entrant] : meeting->entrants) {
    slowness = std::max(slowness, entrant.thread->slowness);
  }
  const Scenario& scenario = network_->scenario();
  const TimeUs base = scenario.step_us * slowness;
  const TimeUs takes = network_->random().Between(base / 2, base + base / 2);
  VirtualTime& time = network_->time();
  if (network_->Happens(scenario.group_break_chance)) {
    time.At(time.now() + takes / 2, [this, meeting] { Break(meeting, "a connection broke"); });
  }
  auto results = std::make_shared<std::vector<scheduler::StepResult>>();
  if (!scenario.compute_at_end) *results = Compute(*meeting);
  time.At(time.now() + takes, [this, meeting, results] {
    if (meeting->broken || AnyHangs(meeting->entrants)) return;
    if (results->empty()) *results = Compute(*meeting);
    ++run_;
    if (PartOf(meeting->entrants.at(0)).tp > 1) ++tensor_run_;
    for (auto& [rank, entrant] : meeting->entrants) {
      StepDone done{.step = entrant.step.step, .status = {}, .results = {(*results)[rank]}};
      if (entrant.thread->fails || (rank == 0 && FailsEngines(*SequenceOf(entrant).spec))) {
        done = {done.step, absl::InternalError("the device failed"), {}};
      }
      const TimeUs lag = network_->random().Between(0, 300);
      entrant.process->After(lag, [this, meeting, rank = rank, done] {
        Entrant& mine = meeting->entrants.at(rank);
        if (mine.over) return;
        for (int layer = 0; layer < mine.engine->Spec().kv.num_layers; ++layer) {
          mine.layer_done(mine.step, layer);
        }
        End(meeting, rank, done);
      });
    }
  });
}

void JointSteps::End(const std::shared_ptr<Meeting>& meeting, int rank, StepDone done) {
  Entrant& entrant = meeting->entrants.at(rank);
  if (entrant.over || entrant.thread->hangs) return;
  entrant.over = true;
  entrant.thread->busy = false;
  const bool all_over = std::all_of(meeting->entrants.begin(), meeting->entrants.end(),
                                    [](const auto& entry) { return entry.second.over; });
  if (all_over && meeting->entrants.size() == meeting->size) meetings_.erase(meeting->key);
  entrant.done(std::move(done));
}

void JointSteps::EndAfter(TimeUs delay, const std::shared_ptr<Meeting>& meeting, int rank,
                          absl::Status status) {
  Entrant& entrant = meeting->entrants.at(rank);
  entrant.process->After(delay, [this, meeting, rank, status = std::move(status)] {
    End(meeting, rank, {meeting->entrants.at(rank).step.step, status, {}});
  });
}

// The others hear of it, or not: then they wait for their deadline or for somebody's cancel.
void JointSteps::Break(const std::shared_ptr<Meeting>& meeting, const char* why) {
  if (meeting->broken) return;
  meeting->broken = true;
  ++broken_;
  for (const auto& [rank, entrant] : meeting->entrants) {
    if (entrant.over || network_->Happens(network_->scenario().word_loss_chance)) continue;
    EndAfter(network_->random().Between(0, 20) * kMillisecondUs, meeting, rank,
             absl::UnavailableError(why));
  }
}

void JointSteps::Abort(const Process* process, const scheduler::AbortRing& abort) {
  const auto it = opened_.find({process, abort.group});
  if (it == opened_.end()) return verdict_->Violated("a group is broken that was not made");
  it->second.broken = true;
  if (abort.group != RingKind::kPieces) return;  // that of the pieces is, too
  bool was_in = false;
  for (const auto& [key, meeting] : Meetings(meetings_)) {
    if (key.first != it->second.key) continue;
    const auto own = meeting->entrants.find(it->second.rank);
    if (own == meeting->entrants.end() || own->second.over) continue;
    was_in = true;
    EndAfter(network_->random().Between(0, 500), meeting, it->second.rank,
             absl::UnavailableError(abort.reason.message()));
    Break(meeting, "a member broke the group");
  }
  if (!was_in) WillNotCome(it->second.key, it->second.rank);
}

void JointSteps::Refuse(const scheduler::BreakGroup& refusal) {
  WillNotCome(refusal.group, refusal.rank);
}

// To no further piece of the group; the word of it may be lost.
void JointSteps::WillNotCome(GroupId group, int rank) {
  refusers_.insert({group, rank});
  if (network_->Happens(network_->scenario().word_loss_chance)) return;
  refused_.insert(group);
  for (const auto& [key, meeting] : Meetings(meetings_)) {
    if (key.first == group) Break(meeting, "a member gave up");
  }
}

void JointSteps::Died(const Process* process) {
  std::erase_if(opened_, [process](const auto& made) { return made.first.first == process; });
  for (const auto& [key, meeting] : Meetings(meetings_)) {
    for (auto& [rank, entrant] : meeting->entrants) {
      if (entrant.process != process || entrant.over) continue;
      entrant.over = true;
      Break(meeting, "a member died");
    }
  }
}

}  // namespace skein::sim
