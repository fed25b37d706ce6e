#include "services/skeinctl/chaos/chaos_player.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/simulator/random.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services::chaos {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(50);
constexpr double kStreamsWithinS = 60;
constexpr int kSwitches = 5;  // that may be over before they are seen

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

absl::Status Interrupted() { return absl::AbortedError("interrupted"); }

std::map<std::string, int64_t> ServingByRole(const std::vector<ChaosProcess>& processes) {
  std::map<std::string, int64_t> serving;
  for (const ChaosProcess& one : processes) serving[one.role] += one.serving ? 1 : 0;
  return serving;
}

// What the roles lack: "1 of 2 decode"; empty if nothing.
std::string Lacking(const std::vector<ChaosProcess>& whole, const std::vector<ChaosProcess>& now) {
  auto serving = ServingByRole(now);
  std::string lacking;
  for (const auto& [role, count] : ServingByRole(whole)) {
    if (serving[role] >= count) continue;
    absl::StrAppend(&lacking, lacking.empty() ? "" : ", ", serving[role], " of ", count, " ", role);
  }
  return lacking;
}

bool MayBreak(const ChaosProcess& one, const std::vector<std::string>& spare) {
  const bool spared = std::any_of(spare.begin(), spare.end(), [&](const std::string& text) {
    return text == one.name || (one.pid != 0 && text == absl::StrCat(one.pid));
  });
  return one.serving && one.reachable && !spared;
}

}  // namespace

const ChaosProcess* VictimAmong(const std::vector<ChaosProcess>& processes, const std::string& role,
                                const std::vector<std::string>& spare) {
  const bool standby = role == "standby";
  const bool elected = std::any_of(processes.begin(), processes.end(),
                                   [](const ChaosProcess& one) { return one.leads; });
  if (standby && !elected) return nullptr;
  const ChaosProcess* victim = nullptr;
  for (const ChaosProcess& one : processes) {
    if (one.role != (standby ? "orchestrator" : role) || !MayBreak(one, spare)) continue;
    if (elected && one.role == "orchestrator" && one.leads == standby) continue;
    if (victim == nullptr || one.running > victim->running) victim = &one;
  }
  return victim;
}

ChaosPlayer::ChaosPlayer(ChaosTarget* target, ChaosLoad* load, std::vector<Reference> references,
                         PlayOptions options, Moments moments,
                         std::function<void(const std::string&)> told)
    : target_(*target),
      load_(*load),
      references_(std::move(references)),
      options_(std::move(options)),
      moments_(std::move(moments)),
      told_(std::move(told)) {}

absl::StatusOr<Row> ChaosPlayer::Play(const Scenario& scenario) {
  Row row;
  row.scenario = scenario.name;
  auto whole = target_.Processes();
  if (!whole.ok()) return whole.status();
  whole_ = *std::move(whole);
  row.skipped = WhySkipped(scenario);
  if (!row.skipped.empty()) {
    told_(absl::StrCat(scenario.name, ": skipped: ", row.skipped));
    return row;
  }
  const bool handoffs = scenario.moment == Moment::kHandoff;
  if (handoffs) {
    if (absl::Status ready = moments_.handoffs->Prepare(); !ready.ok()) return ready;
  }
  const bool batch = scenario.moment == Moment::kBatch;
  if (batch) {
    if (absl::Status ready = moments_.batch->Prepare(); !ready.ok()) return ready;
  }
  marks_.clear();
  told_(absl::StrCat(scenario.name, ": ", scenario.summary));
  load_.Start();
  if (handoffs) moments_.handoffs->Start();
  absl::Status done = Run(scenario, &row);
  const std::vector<StreamRecord> records = load_.Stop();
  const Row handed = handoffs ? moments_.handoffs->Stop(marks_) : Row();
  const double seconds = load_.NowS();
  done.Update(BringBack());
  absl::StatusOr<Row> lines = Row();
  if (batch && done.ok() && row.skipped.empty()) {
    told_("  the batch is waited for");
    lines = moments_.batch->Await();
    done.Update(lines.status());
  }
  if (!done.ok()) {
    return absl::Status(done.code(), absl::StrCat(scenario.name, ": ", done.message()));
  }
  if (!row.skipped.empty()) return row;
  Row judged = RowOf(scenario.name, records, references_, marks_, options_.stall_s, options_.ties);
  judged.clients_may_fail = row.clients_may_fail;
  judged.seconds = seconds;
  AddCounts(handed, &judged);
  AddCounts(*lines, &judged);
  return judged;
}

std::string ChaosPlayer::WhySkipped(const Scenario& scenario) const {
  if (scenario.play != Play::kNothing && scenario.play != Play::kRandom) {
    const absl::Status allowed = target_.Allows(scenario.fault);
    if (!allowed.ok()) return std::string(allowed.message());
  }
  if (scenario.stays_away) {
    const absl::Status allowed = target_.AllowsAbsence();
    if (!allowed.ok()) return std::string(allowed.message());
    if (ServingByRole(whole_)[scenario.role] < 2) {
      return absl::StrCat("no other ", scenario.role, " serves here");
    }
  }
  if (!scenario.role.empty() && VictimAmong(whole_, scenario.role, options_.spare) == nullptr) {
    return absl::StrCat("no ", scenario.role, " that may be broken serves here");
  }
  if (scenario.moment == Moment::kBatch && moments_.batch == nullptr) return "there is no batch";
  const bool handoffs = scenario.moment == Moment::kHandoff;
  return handoffs && moments_.handoffs == nullptr ? "nobody tells of handoffs here" : "";
}

absl::Status ChaosPlayer::Run(const Scenario& scenario, Row* row) {
  if (absl::Status streams = AwaitStreams(); !streams.ok()) return streams;
  switch (scenario.play) {
    case Play::kNothing:
      // A mark without a fault: gaps and first tokens of the load itself.
      marks_.push_back({.at_s = load_.NowS(), .until_s = load_.NowS(), .what = "nothing"});
      load_.Probe(0, options_.probes);
      if (absl::Status waited = Wait(options_.calm_s); !waited.ok()) return waited;
      return AwaitProbes();
    case Play::kOne:
      if (scenario.stays_away) return TakeAway(scenario.role);
      if (scenario.moment == Moment::kAny) return BreakOne(scenario.role, scenario.fault, row);
      if (scenario.moment == Moment::kHandoff) return BreakInAHandoff(scenario, row);
      if (scenario.moment == Moment::kBatch) return BreakInABatch(scenario, row);
      return BreakInASwitch(scenario, row);
    case Play::kEach:
      return BreakEach(scenario.fault, row);
    case Play::kRandom:
      return BreakAtRandom();
  }
  return absl::InternalError("unknown kind of scenario");
}

absl::Status ChaosPlayer::BreakOne(const std::string& role, Fault fault, Row* row) {
  const auto processes = target_.Processes();
  if (!processes.ok()) return processes.status();
  const ChaosProcess* victim = VictimAmong(*processes, role, options_.spare);
  if (victim == nullptr) return absl::UnavailableError(absl::StrCat("no ", role, " serves"));
  row->clients_may_fail = role == "router" && ClientsMayFail(fault);
  return BreakAndMend(*victim, fault);
}

// The streams of the process go on at others while it is away.
absl::Status ChaosPlayer::TakeAway(const std::string& role) {
  const auto processes = target_.Processes();
  if (!processes.ok()) return processes.status();
  const ChaosProcess* victim = VictimAmong(*processes, role, options_.spare);
  if (victim == nullptr) return absl::UnavailableError(absl::StrCat("no ", role, " serves"));
  if (absl::Status broken = Break(*victim, Fault::kTerm); !broken.ok()) return broken;
  if (absl::Status ended = target_.End(*victim, Fault::kTerm); !ended.ok()) return ended;
  away_ = *victim;
  marks_.back().until_s = load_.NowS();
  return AwaitProbes();
}

absl::Status ChaosPlayer::BringBack() {
  if (!away_.has_value()) return absl::OkStatus();
  const ChaosProcess process = *std::exchange(away_, std::nullopt);
  if (absl::Status back = target_.Restart(process); !back.ok()) return back;
  return AwaitWhole();
}

// The orchestrator and the routers come last: the workers need both to come back.
absl::Status ChaosPlayer::BreakEach(Fault fault, Row* row) {
  for (int64_t round = 0; round < options_.rounds; ++round) {
    const auto processes = target_.Processes();
    if (!processes.ok()) return processes.status();
    for (const char* role : {"prefill", "decode", "orchestrator", "router"}) {
      for (const ChaosProcess& one : *processes) {
        if (one.role != role || !MayBreak(one, options_.spare)) continue;
        if (one.role == "router") row->clients_may_fail = ClientsMayFail(fault);
        if (absl::Status done = BreakAndMend(one, fault); !done.ok()) return done;
        if (absl::Status streams = AwaitStreams(); !streams.ok()) return streams;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ChaosPlayer::BreakAtRandom() {
  scheduler::Random random(options_.seed);
  const auto begin = Clock::now();
  const auto end = begin + Milliseconds(options_.duration_s);
  for (int64_t i = 0; i == 0 || Clock::now() < end; ++i) {
    const auto due = begin + Milliseconds(options_.fault_every_s * static_cast<double>(i));
    const auto next = std::min(due, end);
    if (Clock::now() < next) {
      const double left = std::chrono::duration<double>(next - Clock::now()).count();
      if (absl::Status waited = Wait(left); !waited.ok()) return waited;
    }
    if (due >= end) break;
    const auto processes = target_.Processes();
    if (!processes.ok()) return processes.status();
    std::vector<const ChaosProcess*> victims;
    for (const ChaosProcess& one : *processes) {
      if (one.role != "router" && MayBreak(one, options_.spare)) victims.push_back(&one);
    }
    std::vector<Fault> faults;
    for (const Fault fault : {Fault::kKill, Fault::kStop, Fault::kTerm}) {
      if (target_.Allows(fault).ok()) faults.push_back(fault);
    }
    if (victims.empty()) return absl::UnavailableError("no process that may be broken serves");
    const ChaosProcess& victim = *victims[random.Next() % victims.size()];
    absl::Status done = BreakAndMend(victim, faults[random.Next() % faults.size()]);
    if (!done.ok()) return done;
  }
  return absl::OkStatus();
}

absl::Status ChaosPlayer::BreakInAHandoff(const Scenario& scenario, Row* row) {
  const auto seen = moments_.handoffs->AwaitHandoff();
  if (!seen.ok()) return seen.status();
  told_(absl::StrCat("  the prompt of request ", *seen, " is handed off"));
  return BreakOne(scenario.role, scenario.fault, row);
}

absl::Status ChaosPlayer::BreakInABatch(const Scenario& scenario, Row* row) {
  const absl::Status started = moments_.batch->Start();
  if (absl::IsUnimplemented(started)) {
    row->skipped = std::string(started.message());
    return absl::OkStatus();
  }
  if (!started.ok()) return started;
  if (absl::Status midst = moments_.batch->AwaitMidst(); !midst.ok()) return midst;
  told_("  lines of the batch are answered, and more are left");
  return BreakOne(scenario.role, scenario.fault, row);
}

// A switch takes milliseconds, and may be over before it is seen: then it is ordered again, and at
// last the fault follows the order at once.
absl::Status ChaosPlayer::BreakInASwitch(const Scenario& scenario, Row* row) {
  const bool binds = scenario.moment == Moment::kBind;
  absl::Status done;
  for (int i = 0; i < kSwitches && marks_.empty() && done.ok(); ++i) {
    const absl::Status before = binds ? moments_.release() : moments_.bind();
    if (!before.ok()) {
      row->skipped = absl::StrCat("nothing to switch: ", before.message());
      return absl::OkStatus();
    }
    const auto processes = target_.Processes();
    if (!processes.ok()) return processes.status();
    const ChaosProcess* victim = VictimAmong(*processes, scenario.role, options_.spare);
    if (victim == nullptr) {
      return absl::UnavailableError(absl::StrCat("no ", scenario.role, " serves"));
    }
    row->clients_may_fail = scenario.role == "router" && ClientsMayFail(scenario.fault);
    const absl::Status switched = moments_.switch_formation(
        binds, /*at_once=*/i + 1 == kSwitches, [&](const std::string& stage) {
          told_(absl::StrCat("  ", NameOf(scenario.moment), " is under way: ", stage));
          done = BreakAndMend(*victim, scenario.fault);
        });
    // It may fail because of the fault; clients must not notice.
    told_(absl::StrCat("  ", NameOf(scenario.moment), ": ",
                       switched.ok() ? "done" : switched.ToString()));
    if (StopSignalled()) done = Interrupted();
  }
  const absl::Status released = moments_.release();
  told_(absl::StrCat("  release: ", released.ok() ? "done" : released.ToString()));
  if (marks_.empty() && done.ok()) row->skipped = "the switches were over before the fault";
  return done;
}

// Streams end with a router that is killed. One that leaves finishes its streams, but takes no new
// requests, and then another one must.
bool ChaosPlayer::ClientsMayFail(Fault fault) const {
  const auto routers = std::count_if(whole_.begin(), whole_.end(),
                                     [](const ChaosProcess& one) { return one.role == "router"; });
  return fault == Fault::kKill || (fault == Fault::kTerm && routers == 1);
}

std::optional<RouterLoss> ChaosPlayer::LossBy(const ChaosProcess& process, Fault fault) const {
  if (process.role != "router" || !ClientsMayFail(fault)) return std::nullopt;
  const auto routers = std::count_if(whole_.begin(), whole_.end(),
                                     [](const ChaosProcess& one) { return one.role == "router"; });
  return RouterLoss{.router = load_.RouterAt(process.endpoint),
                    .breaks_off = fault == Fault::kKill,
                    .leaves_none = routers == 1};
}

absl::Status ChaosPlayer::Break(const ChaosProcess& process, Fault fault) {
  const auto index = static_cast<int64_t>(marks_.size());
  const std::string what = absl::StrCat(NameOf(fault), " ", process.name);
  const int64_t running = load_.Running();
  const double at_s = load_.NowS();
  if (absl::Status broken = target_.Break(process, fault); !broken.ok()) return broken;
  marks_.push_back(
      {.at_s = at_s, .until_s = at_s, .what = what, .router_loss = LossBy(process, fault)});
  load_.Probe(index, options_.probes);
  told_(absl::StrFormat("  %.1f s: %s, while %d streams run", at_s, what, running));
  return absl::OkStatus();
}

absl::Status ChaosPlayer::BreakAndMend(const ChaosProcess& process, Fault fault) {
  if (absl::Status broken = Break(process, fault); !broken.ok()) return broken;

  // Mend it even after a stop signal.
  absl::Status held = Wait(Lasts(fault) ? options_.stop_s : 0);
  if (absl::Status ended = target_.End(process, fault); !ended.ok()) return ended;
  if (fault != Fault::kKill) marks_.back().until_s = load_.NowS();
  auto& loss = marks_.back().router_loss;
  if (loss.has_value()) loss->ended_s = loss->serves_again_s = load_.NowS();
  if (!Lasts(fault)) {
    if (held.ok()) Wait(options_.restart_after_s).IgnoreError();
    if (absl::Status back = target_.Restart(process); !back.ok()) return back;
  }
  if (!held.ok()) return held;
  if (absl::Status whole = AwaitWhole(); !whole.ok()) return whole;
  absl::Status answered = AwaitProbes();
  if (loss.has_value()) loss->serves_again_s = load_.NowS();
  return answered;
}

absl::Status ChaosPlayer::Wait(double seconds) const {
  WaitUnlessStopped(Milliseconds(seconds));
  return StopSignalled() ? Interrupted() : absl::OkStatus();
}

absl::Status ChaosPlayer::AwaitStreams() {
  const auto until = Clock::now() + Milliseconds(kStreamsWithinS);
  while (true) {
    const int64_t running = load_.Running();
    if (running >= options_.streams) return absl::OkStatus();
    if (StopSignalled()) return Interrupted();
    if (Clock::now() > until) {
      return absl::UnavailableError(absl::StrFormat(
          "only %d of %d streams run at a time after %g s: the cluster is too small for --streams "
          "%d, or answers are over too soon for --tokens",
          running, options_.streams, kStreamsWithinS, options_.streams));
    }
    WaitUnlessStopped(kLook);
  }
}

absl::Status ChaosPlayer::AwaitWhole() {
  const auto until = Clock::now() + Milliseconds(options_.whole_within_s);
  while (true) {
    const auto now = target_.Processes();
    const std::string lacking =
        now.ok() ? Lacking(whole_, *now) : std::string(now.status().message());
    if (lacking.empty()) return absl::OkStatus();
    if (StopSignalled()) return Interrupted();
    if (Clock::now() > until) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "the cluster is not whole again after %g s: %s serve", options_.whole_within_s, lacking));
    }
    WaitUnlessStopped(kLook);
  }
}

// A chain that gets no token in time is told by the judge.
absl::Status ChaosPlayer::AwaitProbes() {
  const auto until = Clock::now() + Milliseconds(options_.whole_within_s);
  while (!load_.ProbesAnswered() && Clock::now() < until) {
    if (StopSignalled()) return Interrupted();
    WaitUnlessStopped(kLook);
  }
  return absl::OkStatus();
}

}  // namespace skein::services::chaos
