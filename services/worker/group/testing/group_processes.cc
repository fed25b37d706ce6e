#include "services/worker/group/testing/group_processes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/vocabulary/check.h"

namespace skein::services::testing {
namespace {

constexpr auto kAwaitMax = std::chrono::minutes(1);
constexpr int kPrefillBlocks = 64;
constexpr uint64_t kPrefill = 1'000'000;  // the orchestrator's number of the prefill-worker
// Workers report several times in it, and so tell of their communicators.
constexpr scheduler::TimeUs kLeaseUs = 3 * scheduler::kSecondUs;
constexpr double kNllTolerance = 1e-3;  // relative: that of engine/model/group's parity in bf16

WorkerEngine PrefillEngine(const WorkerProcess::Options& options) {
  auto engine =
      MakeWorkerEngine(TinyWorkerOptions(options.device, options.model_dir, kPrefillBlocks),
                       scheduler::Role::kPrefill);
  SKEIN_CHECK_MSG(engine.ok(), engine.status().ToString().c_str());
  return *std::move(engine);
}

std::vector<int32_t> IdsOf(const std::vector<engine::SampledToken>& tokens) {
  std::vector<int32_t> ids;
  for (const engine::SampledToken& one : tokens) ids.push_back(one.token);
  return ids;
}

double NllOf(const std::vector<engine::SampledToken>& tokens) {
  double nll = 0;
  for (const engine::SampledToken& one : tokens) nll -= one.logprob;
  return nll;
}

}  // namespace

// ---- processes ----

GroupProcesses::GroupProcesses(Options options)
    : options_(std::move(options)),
      oracle_(MakeTinyOracle(options_.worker.device, options_.worker.model_dir)),
      orchestrator_(kLeaseUs),
      prefill_engine_(PrefillEngine(options_.worker)),
      prefill_(&prefill_engine_, orchestrator_.address(), 1024),
      slots_(Index(options_.size)) {
  for (Slot& slot : slots_) Launch(&slot);
  scheduler::PrefillConfig config;
  scheduler::WorkerIdentity& identity = config.membership.identity;
  identity.role = scheduler::Role::kPrefill;
  identity.model = "m";
  identity.endpoint = "127.0.0.1:1";  // nobody calls it
  identity.incarnation = {kPrefill + 1};
  identity.shape = ShapeOf(prefill_engine_.engine->Spec());
  identity.total_blocks = kPrefillBlocks;
  identity.comm_address = prefill_engine_.fabric->Address();
  prefill_.Start(config, [] {});
  orchestrator_.AwaitRegistered(kPrefill);
  for (Slot& slot : slots_) Meet(&slot);
}

GroupProcesses::~GroupProcesses() {
  prefill_.Stop();
  for (Slot& slot : slots_) slot.process.reset();  // then the streams end
}

void GroupProcesses::Launch(Slot* slot) {
  slot->worker = next_worker_++;
  slot->process =
      std::make_unique<WorkerProcess>(options_.worker, orchestrator_.address(), slot->worker);
}

void GroupProcesses::Meet(Slot* slot) {
  slot->endpoint = orchestrator_.AwaitRegistered(slot->worker);
  slot->alive = true;
}

void GroupProcesses::Bury(int slot) {
  slots_[Index(slot)].alive = false;
  slots_[Index(slot)].process.reset();
  slots_[Index(slot)].reader.reset();  // what it had sent is taken
  const std::lock_guard lock(mutex_);
  for (auto& [serial, answer] : answers_) {
    if (answer.slot == slot && answer.state == Answer::State::kLive) {
      answer.state = Answer::State::kLost;
    }
  }
}

void GroupProcesses::SetAside(int slot) { slots_[Index(slot)].alive = false; }
void GroupProcesses::TakeBack(int slot) { slots_[Index(slot)].alive = true; }

void GroupProcesses::Restart(int slot) {
  Launch(&slots_[Index(slot)]);
  Meet(&slots_[Index(slot)]);
}

void GroupProcesses::Await(const std::function<bool()>& so, const std::string& what) {
  const auto until = std::chrono::steady_clock::now() + kAwaitMax;
  while (!so()) {
    TakeDropped();
    if (std::chrono::steady_clock::now() > until) {
      std::fprintf(stderr, "in a minute it did not come that %s\n%s", what.c_str(),
                   State().c_str());
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::string GroupProcesses::State() {
  std::string text;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const scheduler::FormationTold told = orchestrator_.Told(slots_[i].worker);
    absl::StrAppend(&text, "worker ", i, slots_[i].alive ? "" : " (dead)", ": formation ",
                    told.epoch, " in phase ", static_cast<int>(told.phase), " ",
                    told.why.ToString(), "\n");
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [serial, answer] : answers_) {
    if (answer.state != Answer::State::kLive) continue;
    absl::StrAppend(&text, "request ", serial, " at worker ", answer.slot, ", attempt ",
                    answer.attempts, ": ", answer.output.size(), " of ", answer.spec->max_tokens,
                    " tokens\n");
  }
  return text;
}

// ---- formations ----

void GroupProcesses::MakeGroups(const std::vector<int>& slots) {
  members_ = slots;
  std::sort(members_.begin(), members_.end(),
            [this](int a, int b) { return slots_[Index(a)].worker < slots_[Index(b)].worker; });
  ++generation_;
  std::vector<uint64_t> workers;
  for (const int slot : members_) workers.push_back(slots_[Index(slot)].worker);
  orchestrator_.OrderGroups(generation_, workers);
  Await(
      [&] {
        return std::all_of(workers.begin(), workers.end(), [this](uint64_t worker) {
          return orchestrator_.GroupsMade(worker) == generation_;
        });
      },
      absl::StrCat("the communicators of generation ", generation_, " are made"));
}

uint64_t GroupProcesses::Prepare(int first, int count, std::optional<scheduler::ShiftRule> shift,
                                 scheduler::OwnSequences own) {
  ++formation_epoch_;
  for (int rank = first; rank < first + count; ++rank) {
    orchestrator_.Tell(WorkerOf(rank),
                       scheduler::PrepareFormation{formation_epoch_, generation_, first, count,
                                                   options_.keep_us, shift, own});
  }
  return formation_epoch_;
}

void GroupProcesses::Commit(int first, uint64_t epoch) {
  orchestrator_.Tell(WorkerOf(first), scheduler::CommitFormation{epoch});
}

void GroupProcesses::End(int rank, uint64_t epoch, Switch how) {
  orchestrator_.Tell(WorkerOf(rank),
                     scheduler::EndFormation{epoch, how, absl::CancelledError("released")});
}

bool GroupProcesses::IsThatFar(int rank, uint64_t epoch, Phase phase) {
  const scheduler::FormationTold told = orchestrator_.Told(WorkerOf(rank));
  if (told.epoch != epoch) return false;
  return told.phase == phase || told.phase == Phase::kEnded ||
         (phase == Phase::kPrepared && told.phase == Phase::kBound);
}

bool GroupProcesses::HasEnded(int rank, uint64_t epoch) {
  return IsThatFar(rank, epoch, Phase::kEnded);
}

void GroupProcesses::AwaitPhase(int first, int count, uint64_t epoch, Phase phase) {
  for (int rank = first; rank < first + count; ++rank) {
    Await([&] { return IsThatFar(rank, epoch, phase); },
          absl::StrCat("rank ", rank, " tells of formation ", epoch));
  }
}

void GroupProcesses::AwaitEnds(int first, int count, uint64_t epoch) {
  AwaitPhase(first, count, epoch, Phase::kEnded);
}

std::string GroupProcesses::WhyEnded(int rank) {
  return orchestrator_.Told(WorkerOf(rank)).why.ToString();
}

// ---- requests ----

uint64_t GroupProcesses::Start(int slot, int64_t prompt_tokens, int64_t max_tokens,
                               uint64_t formation, bool handoff) {
  Answer* answer = nullptr;
  {
    const std::lock_guard lock(mutex_);
    answer = &answers_[++serial_];
    answer->spec = TinyRequest(serial_, prompt_tokens, max_tokens);
  }
  Place(answer, slot, formation, handoff || formation == 0);
  return serial_;
}

// The map's entries stay where they are, and only this thread adds and removes them.
void GroupProcesses::Place(Answer* answer, int slot, uint64_t formation, bool handoff) {
  const scheduler::SpecPtr spec = answer->spec;
  const uint64_t epoch = ++request_epoch_;
  Slot& at = slots_[Index(slot)];
  {
    const std::lock_guard lock(mutex_);
    answer->epoch = epoch;
    answer->slot = slot;
    ++answer->attempts;
    answer->state = Answer::State::kLive;
    answer->retry = false;
  }
  // A stream that says nothing for long would be ended.
  if (at.reader == nullptr) {
    at.reader = std::make_unique<TokenReader>(
        at.endpoint, [this, worker = at.worker](const auto& told) { Take(worker, told); });
  }
  at.reader->Attach(spec->id, epoch);
  v1::OrchestratorMessage message;
  v1::AnnounceRequest* announce = message.mutable_announce();
  announce->set_spec(ToProto(*spec).SerializeAsString());
  announce->set_epoch(epoch);
  announce->set_formation(formation);
  if (handoff) announce->add_writers(kPrefill + 1);
  orchestrator_.Tell(at.worker, std::move(message));
  if (!handoff) return;
  prefill_.Post(scheduler::AssignCalled{
      {epoch},
      {.spec = spec,
       .epoch = {epoch},
       .sequence = {++plan_},
       .placed = scheduler::Placed{{epoch}, {at.worker + 1}, at.endpoint, {at.worker + 1}}}});
}

void GroupProcesses::Take(uint64_t worker, const v1::TokenBatch::Sequence& told) {
  const std::lock_guard lock(mutex_);
  const auto it = answers_.find(told.id().serial());
  if (it == answers_.end() || told.epoch() != it->second.epoch) return;
  Answer& answer = it->second;
  if (answer.state != Answer::State::kLive || told.first_index() != answer.output.size()) {
    absl::StrAppend(&wrong_, "request ", told.id().serial(), " at the orchestrator's worker ",
                    worker, ", which has ", answer.output.size(),
                    " tokens: ", told.ShortDebugString(), "\n");
  }
  for (int i = 0; i < told.tokens_size(); ++i) {
    v1::SampledToken sampled;
    if (i < told.sampled_size()) sampled.ParseFromString(told.sampled(i));
    answer.output.push_back({.token = told.tokens(i), .logprob = sampled.logprob(), .top = {}});
    ++tokens_;
  }
  if (!told.has_finished()) return;
  if (told.finished().reason() == v1::FINISH_REASON_LENGTH) {
    answer.state = Answer::State::kWhole;
    return;
  }
  const auto code = static_cast<absl::StatusCode>(told.finished().failure().code());
  answer.state = Answer::State::kFailed;
  answer.why = told.finished().ShortDebugString();
  // Cancelled: by the prefill-worker, which was told to drop it.
  answer.retry = answer.output.empty() && (code == absl::StatusCode::kUnavailable ||
                                           code == absl::StatusCode::kResourceExhausted ||
                                           code == absl::StatusCode::kCancelled);
}

// What the prefill-worker cannot bring to where it was placed; the decode-worker may hold it.
void GroupProcesses::TakeDropped() {
  for (const auto& [id, epoch] : orchestrator_.TakeDropped()) {
    int slot = -1;
    {
      const std::lock_guard lock(mutex_);
      const auto it = answers_.find(id.serial);
      if (it == answers_.end() || it->second.epoch != epoch.value) continue;
      if (it->second.state != Answer::State::kLive) continue;
      slot = it->second.slot;
      if (!it->second.output.empty()) continue;  // it is held, or its end is on the way
      it->second.state = Answer::State::kFailed;
      it->second.retry = true;
      it->second.why = "its handoff was refused, or its announcement lost";
      it->second.epoch = 0;
    }
    if (!alive(slot)) continue;
    v1::OrchestratorMessage message;
    *message.mutable_cancel()->mutable_id() = ToProto(id);
    message.mutable_cancel()->set_epoch(epoch.value);
    orchestrator_.Tell(slots_[Index(slot)].worker, std::move(message));
  }
}

void GroupProcesses::Retry() {
  TakeDropped();
  std::vector<Answer*> again;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [serial, answer] : answers_) {
      if (answer.state == Answer::State::kFailed && answer.retry) again.push_back(&answer);
    }
  }
  for (Answer* answer : again) {
    int slot = answer->slot;
    while (!alive(slot)) slot = (slot + 1) % size();
    Place(answer, slot, /*formation=*/0, /*handoff=*/true);
  }
}

bool GroupProcesses::AnyLive() {
  Retry();
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (auto& [serial, answer] : answers_) {
    if (answer.state != Answer::State::kLive || !alive(answer.slot)) continue;
    const TokenReader& reader = *slots_[Index(answer.slot)].reader;
    if (reader.ended()) {
      answer.state = Answer::State::kLost;
      answer.why = "its stream has ended: " + reader.why();
    }
    any = any || answer.state == Answer::State::kLive;
  }
  return any;
}

int64_t GroupProcesses::TokensSoFar() {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

GroupProcesses::Ends GroupProcesses::SettleRequests() {
  Await([this] { return !AnyLive(); }, "all requests have ended");
  std::map<uint64_t, Answer> answers;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = answers_.begin(); it != answers_.end();) {
      const auto one = it++;
      if (one->second.state != Answer::State::kLive) answers.insert(answers_.extract(one));
    }
    EXPECT_EQ(std::exchange(wrong_, {}), "");
  }
  Ends ends;
  for (const auto& [serial, answer] : answers) {
    Compare(answer);
    ends.tokens += static_cast<int64_t>(answer.output.size());
    ends.whole += answer.state == Answer::State::kWhole;
    ends.failed += answer.state == Answer::State::kFailed;
    ends.lost += answer.state == Answer::State::kLost;
    if (answer.state != Answer::State::kWhole) absl::StrAppend(&ends.why, answer.why, "\n");
  }
  return ends;
}

void GroupProcesses::Compare(const Answer& answer) {
  SCOPED_TRACE(absl::StrCat("request ", answer.spec->id.serial, " ", answer.why));
  std::vector<engine::SampledToken> expected = oracle_->AnswerTo(*answer.spec);
  ASSERT_LE(answer.output.size(), expected.size());
  const bool short_of_it = answer.output.size() < expected.size();
  EXPECT_FALSE(short_of_it && answer.state == Answer::State::kWhole);
  expected.resize(answer.output.size());
  EXPECT_EQ(IdsOf(answer.output), IdsOf(expected));
  if (answer.output.empty()) return;
  const double forced = oracle_->NllOf(*answer.spec, IdsOf(answer.output));
  EXPECT_NEAR(NllOf(answer.output), forced, kNllTolerance * std::abs(forced));
}

void GroupProcesses::ExpectAtRest() {
  const std::string whole =
      absl::StrCat(options_.worker.blocks, " of ", options_.worker.blocks, " blocks are free, OK");
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].alive) continue;
    EXPECT_EQ(slots_[i].process->Ask("rest"), whole) << "worker " << i;
  }
  Await(
      [this] {
        const auto look = prefill_.Look();
        return look->snapshot.blocks.held == 0 && look->snapshot.handoffs == 0;
      },
      "the prefill-worker holds no block");
  EXPECT_TRUE(prefill_.CheckInvariants().ok());
}

}  // namespace skein::services::testing
