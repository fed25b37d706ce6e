#include "tests/sim/worker_process.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/sim/answers.h"
#include "tests/sim/formation_limits.h"

namespace skein::sim {

using namespace scheduler;  // NOLINT: the messages, all of them

MembershipConfig MembershipOf(Role role, const Process& process,
                              const engine::EmulatedEngine& engine, TimeUs unit_us,
                              bool has_links) {
  const engine::EngineSpec& spec = engine.Spec();
  MembershipConfig config;
  config.identity.role = role;
  config.identity.model = "m";
  config.identity.endpoint = process.endpoint();
  const auto number = static_cast<uint64_t>(NumberOfWorker(process.endpoint()));
  config.identity.incarnation = {number / 10 * 1'000'000 + process.generation() * 1000 +
                                 number % 10 * 10 + (role == Role::kPrefill ? 1 : 2)};
  config.identity.shape = {spec.kv, "emulated"};
  config.identity.total_blocks = spec.own_blocks() - 1;
  config.identity.max_positions = spec.max_positions;
  config.identity.node = "h";
  if (has_links) {
    config.identity.comm_address = absl::StrCat(process.endpoint(), "#", process.generation());
  }
  config.answer_timeout_us = 200 * unit_us;
  config.register_retry_us = 30 * unit_us;
  return config;
}

EngineWatchConfig EngineWatchOf(const engine::EmulatedEngine& engine, TimeUs unit_us) {
  return {.step_timeout_us = 300 * unit_us,
          .probe_interval_us = 50 * unit_us,
          .probe_block = {static_cast<int32_t>(engine.Spec().own_blocks() - 1)},
          .last_words_us = kLastWordsUs,
          .evidence_us = kRequestDeadlineUnits * unit_us};
}

BatchLimits BatchOf(Role role, const Scenario& scenario) {
  if (role == Role::kPrefill) {
    return {.max_batch_tokens = scenario.prefill_batch_tokens,
            .max_batch_sequences = 4,
            .max_slice_tokens = scenario.slice_tokens};
  }
  return {.max_batch_tokens = 16, .max_batch_sequences = scenario.decode_batch};
}

void PrefillProcess::OnStart() {
  StartEngine(Role::kPrefill);
  sender_ = std::make_unique<Sender>(
      network_, this, engine_, transfers_, find_memory_, [this](PrefillEvent event) {
        DispatchAfter(network_->random().Between(0, 200), std::move(event));
      });
  ring_groups_ = std::make_unique<RingGroups>(network_, this, joint_steps_, verdict_);
  const Scenario& scenario = network_->scenario();
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  PrefillConfig config;
  config.membership = MembershipOf(Role::kPrefill, *this, *engine_, unit_us, /*has_links=*/true);
  config.membership.identity.node = NodeOfPrefill(scenario, NumberOfWorker(endpoint()));
  config.engine = EngineWatchOf(*engine_, unit_us);
  config.batch = BatchOf(Role::kPrefill, scenario);
  config.max_requests = scenario.prefill_requests;
  config.max_sequence_tokens = engine_->Spec().max_positions;
  config.open_ahead = scenario.open_ahead;
  config.rpc_timeout_us = 100 * unit_us;
  config.retry_us = 5 * kMillisecondUs;
  config.place_decode_give_up_us = 1000 * unit_us;
  config.request_deadline_us = kRequestDeadlineUnits * unit_us;
  config.ring_step = {.max_us = 3000 * unit_us, .min_us = 1000 * unit_us};
  config.join_wait_us = 1000 * unit_us;
  Run(std::make_unique<PrefillCore>(config));
}

void PrefillProcess::OnCrash() {
  transfers_->Died(endpoint(), generation() - 1);  // Crash has counted it already
  joint_steps_->Died(this);
  assigns_.clear();
  stream_.reset();
}

void PrefillProcess::Serve(const Assigned& message) {
  const AssignRequest& request = message.request;
  const CallId call = NextCall();
  assigns_[call] = {message.instance, request.spec->id, request.epoch, {}, request.sequence};
  Dispatch(AssignCalled{call, request});
}
void PrefillProcess::Serve(const CallStart& message) { Dispatch(StartCalled{message.request}); }
void PrefillProcess::Serve(const PlaceDecodeReplied& message) { Dispatch(message); }

void PrefillProcess::Execute(AnswerAssign& effect) {
  auto answered = assigns_.extract(effect.call);
  if (answered.empty()) return verdict_->Violated("an Assign was answered twice");
  answered.mapped().reply = effect.reply;
  ToOrchestrator(network_->Encoded(answered.mapped()));
}

void PrefillProcess::Execute(AbortStep& effect) { ring_groups_->Abort(effect.step); }

void PrefillProcess::Execute(BreakGroup& effect) { ring_groups_->Break(effect); }

void PrefillProcess::Execute(CallPlaceDecode& effect) {
  ToOrchestrator(PlaceDecodeCalled{{}, network_->Encoded(effect.request)});
}

// A call to a decode worker, with what to do with the reply.
#define SKEIN_SIM_CALL_DECODE(Reply, Replied)                                           \
  network_->Call<Reply>(                                                                \
      this, effect.endpoint, effect.timeout_us,                                         \
      [request = network_->Encoded(effect.request)](Process* callee,                    \
                                                    std::function<void(Reply)> reply) { \
        static_cast<DecodeProcess*>(callee)->Serve(request, std::move(reply));          \
      },                                                                                \
      [this, id = effect.request.id, epoch = effect.request.epoch](Reply reply) {       \
        Dispatch(Replied{id, epoch, std::move(reply)});                                 \
      })

void PrefillProcess::Execute(CallOpenTransfer& effect) {
  SKEIN_SIM_CALL_DECODE(OpenTransferReply, OpenTransferReplied);
}
void PrefillProcess::Execute(CallRenew& effect) { SKEIN_SIM_CALL_DECODE(RenewReply, RenewReplied); }
void PrefillProcess::Execute(CallCommit& effect) {
  SKEIN_SIM_CALL_DECODE(CommitReply, CommitReplied);
}
#undef SKEIN_SIM_CALL_DECODE

// The same, of calls that are numbered.
#define SKEIN_SIM_CALL_DECODE(Reply, Replied, number)                                   \
  network_->Call<Reply>(                                                                \
      this, effect.endpoint, effect.timeout_us,                                         \
      [request = network_->Encoded(effect.request)](Process* callee,                    \
                                                    std::function<void(Reply)> reply) { \
        static_cast<DecodeProcess*>(callee)->Serve(request, std::move(reply));          \
      },                                                                                \
      [this, request = network_->Encoded(effect.request)](Reply reply) {                \
        Dispatch(Replied{request.id, request.epoch, request.number, std::move(reply)}); \
      })

void PrefillProcess::Execute(CallAcquireStagingBuffer& effect) {
  network_->Call<AcquireStagingBufferReply>(
      this, effect.endpoint, effect.timeout_us,
      [request = network_->Encoded(effect.request), me = endpoint()](
          Process* callee, std::function<void(AcquireStagingBufferReply)> reply) {
        static_cast<DecodeProcess*>(callee)->Serve(request, me, std::move(reply));
      },
      [this, request = network_->Encoded(effect.request)](AcquireStagingBufferReply reply) {
        Dispatch(
            AcquireStagingBufferReplied{request.id, request.epoch, request.ask, std::move(reply)});
      });
}
void PrefillProcess::Execute(CallTakePart& effect) {
  SKEIN_SIM_CALL_DECODE(TakePartReply, TakePartReplied, part);
}
void PrefillProcess::Execute(CallReleaseStagingBuffer& effect) {
  SKEIN_SIM_CALL_DECODE(ReleaseStagingBufferReply, ReleaseStagingBufferReplied, ask);
}
#undef SKEIN_SIM_CALL_DECODE

void PrefillProcess::Execute(CallAbort& effect) {
  network_->Call<Done>(
      this, effect.endpoint, effect.timeout_us,
      [request = network_->Encoded(effect.request)](Process* callee,
                                                    std::function<void(Done)> reply) {
        static_cast<DecodeProcess*>(callee)->Serve(request);
        reply({});
      },
      [](Done) {}, /*may_be_refused=*/false);
}

void PrefillProcess::Execute(RunStep& effect) {
  verdict_->Require(!engine_thread_.full(), "three steps in flight");
  for (const StepSequence& sequence : effect.sequences) {
    CheckNotEnded(sequence.id, sequence.epoch, "computes");
    for (BlockId block : *sequence.blocks) {
      transfers_->CheckUse(PlaceOf(block), {sequence.id, sequence.epoch}, "computed for");
    }
  }
  const uint64_t mine = generation();
  EngineThread::LayerDone layer_done = [this, mine](const RunStep& step, int layer) {
    if (generation() != mine) return;
    for (const StepSequence& sequence : step.sequences) {
      const int64_t end =
          sequence.ring != nullptr ? sequence.ring->token_end : sequence.position + sequence.count;
      sender_->Written(sequence.id, sequence.epoch, layer, end);
    }
  };
  if (effect.sequences.front().ring != nullptr) return StepTogether(effect, layer_done);
  engine_thread_.Run(network_, this, engine_, effect, layer_done,
                     [this](StepDone done) { Dispatch(std::move(done)); });
}

void PrefillProcess::StepTogether(const RunStep& step, EngineThread::LayerDone layer_done) {
  verdict_->Require(step.sequences.size() == 1, "a ring sequence is not alone in its step");
  const StepSequence& sequence = step.sequences.front();
  for (const auto& blocks : sequence.ring->receive) {
    for (BlockId block : blocks) {
      transfers_->CheckUse(PlaceOf(block), {sequence.id, sequence.epoch}, "filled for");
    }
  }
  ring_groups_->Run({.process = this,
                     .thread = &engine_thread_,
                     .engine = engine_,
                     .step = step,
                     .layer_done = std::move(layer_done),
                     .done = [this](StepDone done) { Dispatch(std::move(done)); }});
}

void DecodeProcess::OnStart() {
  StartEngine(Role::kDecode);
  const Scenario& scenario = network_->scenario();
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  tokens_ = std::make_unique<TokenStreams>(150 * unit_us);
  tokens_due_us_ = kNever;
  DecodeConfig config;
  config.membership = MembershipOf(Role::kDecode, *this, *engine_, unit_us,
                                   /*has_links=*/scenario.formations.has_value());
  tokens_->SetProcess(config.membership.identity.incarnation);
  config.engine = EngineWatchOf(*engine_, unit_us);
  config.batch = BatchOf(Role::kDecode, scenario);
  config.memory = absl::StrCat(endpoint(), "#", generation());
  config.max_requests = scenario.decode_requests;
  config.max_sequence_tokens = engine_->Spec().max_positions;
  config.lease_us = scenario.writing_lease_ms * unit_us;
  config.open_wait_us = 40 * unit_us;
  config.request_deadline_us = kRequestDeadlineUnits * unit_us;
  config.attach_lease_us = scenario.attach_lease_ms * unit_us;
  if (const auto& plan = scenario.formations; plan.has_value()) {
    const FormationTimes times = FormationTimesOf(scenario);
    config.group = {.limits = times.feed,
                    .step_max_us = times.step_max_us,
                    .shift_tokens = plan->shift_tokens,
                    .own_share = plan->own_share,
                    .extra_wait_us = 100 * unit_us};
    if (plan->shares) config.group.can_share = absl::OkStatus();
  }
  StartStaging(&config.staging);
  Run(std::make_unique<DecodeCore>(config));
}

void DecodeProcess::StartStaging(StagingConfig* config) {
  const Scenario& scenario = network_->scenario();
  buffers_.clear();
  for (int i = 0; i < scenario.staging_buffers; ++i) {
    buffers_.push_back(std::make_shared<std::vector<std::byte>>(scenario.staging_slots *
                                                                engine_->Spec().kv.BlockBytes()));
    config->memory.push_back(absl::StrCat(endpoint(), "#", generation(), "#", i));
  }
  config->slots = scenario.staging_slots;
  config->acquire_wait_us = 40 * scenario.time_scale * kMillisecondUs;
  config->hold_us = 30 * scenario.time_scale * kMillisecondUs;
}

void DecodeProcess::OnCrash() {
  watch_->Died(this);
  feeds_->Died(this);
  grants_.clear();
  renews_.clear();
  acquisitions_.clear();
  parts_.clear();
  releases_.clear();
  commits_.clear();
  granted_to_.clear();
  asked_by_.clear();
  token_links_.clear();
  epochs_.clear();
  stream_.reset();
}

void DecodeProcess::OpenTokenStream(std::shared_ptr<Stream> stream, OnBatch batch) {
  const TokenStreamId id{++last_token_stream_};
  token_links_[id] = {stream, std::move(batch)};
  stream->Accept(this, [this, id] { CloseTokenStream(id); });
}

void DecodeProcess::CloseTokenStream(TokenStreamId id) {
  token_links_.erase(id);
  for (const DecodeEvent& event : tokens_->Close(id, LocalNow())) Dispatch(event);
  ArmTokens();  // held requests end in time
}

void DecodeProcess::TokenRequest(Stream* stream, const TokenStreamRequest& request) {
  const auto link = std::find_if(token_links_.begin(), token_links_.end(), [&](const auto& entry) {
    return entry.second.stream.get() == stream;
  });
  if (link == token_links_.end()) return;
  std::vector<DecodeEvent> events;
  const absl::Status taken = tokens_->Take(link->first, request, &events);
  if (!taken.ok()) verdict_->Violated(std::string(taken.message()));
  for (const DecodeEvent& event : events) Dispatch(event);
  Executed();  // credit alone is no event
}

void DecodeProcess::Executed() {
  for (const TokenStreamId id : tokens_->TakeReady()) {
    const auto link = token_links_.find(id);
    while (link != token_links_.end() && tokens_->HasNext(id)) {
      link->second.stream->Send([batch = link->second.batch,
                                 tokens = network_->Encoded(tokens_->Next(id))] { batch(tokens); });
    }
  }
  const absl::Status invariants = tokens_->CheckInvariants();
  if (!invariants.ok()) verdict_->Violated(std::string(invariants.message()));
  ArmTokens();
}

void DecodeProcess::ArmTokens() {
  const TimeUs due = tokens_->NextDeadline();
  if (due >= tokens_due_us_) return;
  tokens_due_us_ = due;
  After(std::max<TimeUs>(due - LocalNow(), 1), [this, due] {
    if (tokens_due_us_ != due) return;
    tokens_due_us_ = kNever;
    for (const DecodeEvent& event : tokens_->Tick(LocalNow())) Dispatch(event);
    Executed();
  });
}

void DecodeProcess::Serve(const Announced& message) {
  Dispatch(AnnounceCalled{message.request, absl::OkStatus()});
}
void DecodeProcess::Serve(const CallWithdraw& message) {
  Dispatch(WithdrawCalled{message.request});
}
void DecodeProcess::Serve(const CallGroup& message) { feeds_->Take(this, message.request); }

void DecodeProcess::ServeFormation(const PrepareFormation& order) {
  if (order.shared) return Dispatch(order);  // no point of a bind
  const int index = feeds_->IndexOf(this, order.generation);
  const FormationWatch::Part part{
      .epoch = order.epoch, .rank = index - order.first, .size = order.size, .own = order.own};
  const auto take = [this, order, part] {
    watch_->Asked(this, part);
    Dispatch(order);
  };
  if (index < 0) return take();  // it refuses
  watch_->Pass(FaultPoint::kPrepareOrdered, this, part, take);
}
void DecodeProcess::ServeFormation(const CommitFormation& order) {
  const std::optional<FormationWatch::Part> part = watch_->PartOf(this, order.epoch);
  const auto take = [this, order] { Dispatch(order); };
  if (!part.has_value()) return take();
  watch_->Pass(FaultPoint::kCommitOrdered, this, *part, take);
}
void DecodeProcess::ServeFormation(const EndFormation& order) {
  const std::optional<FormationWatch::Part> part = watch_->PartOf(this, order.epoch);
  const auto take = [this, order] { Dispatch(order); };
  if (!part.has_value() || !part->bound) return take();  // no release
  watch_->Pass(FaultPoint::kReleaseOrdered, this, *part, take);
}

void DecodeProcess::ServeFormation(const OrderMode& order) { Dispatch(order); }

// The engine shares its weights: no weight moves, but it takes a while, and may refuse. Blocks come
// and go, and what was in them is lost.
void DecodeProcess::Execute(CallSharing& effect) {
  const bool prepares = std::holds_alternative<PrepareShared>(effect.call) ||
                        std::holds_alternative<ReadyMode>(effect.call);
  verdict_->Require(prepares || !engine_thread_.busy,
                    "the engine is to share its weights otherwise while a step runs");
  const Scenario& scenario = network_->scenario();
  const bool refuses = prepares && network_->Happens(scenario.formations->feed_failure_chance);
  const uint64_t call = std::visit([](const auto& one) { return one.call; }, effect.call);
  const int64_t extra = engine_->Spec().extra_blocks;
  BlockRange come;
  if (std::holds_alternative<EnterShared>(effect.call) && extra > 0) {
    come = {{static_cast<int32_t>(engine_->Spec().own_blocks())},
            1 + static_cast<int64_t>(call) % extra};
  }
  if (const auto* leave = std::get_if<LeaveShared>(&effect.call)) TakeExtraBlocks(leave->moves);
  DispatchAfter(10 * network_->Delay(),
                SharingDone{call,
                            refuses ? absl::UnavailableError("the engine has no room for it")
                                    : absl::OkStatus(),
                            come});
}

void DecodeProcess::TakeExtraBlocks(const std::vector<BlockMove>& moves) {
  const engine::EngineSpec& spec = engine_->Spec();
  const int64_t bytes = spec.kv.BlockBytes();
  for (const BlockMove& move : moves) {
    verdict_->Require(move.from.value >= spec.own_blocks() && move.to.value < spec.own_blocks(),
                      "a block is moved that stays, or into one that goes");
    verdict_->Require(
        !transfers_->Under(PlaceOf(move.from)) && !transfers_->Under(PlaceOf(move.to)),
        "a block is moved while it is written");
  }
  for (const engine::KvRegion& region : engine_->KvRegions()) {
    auto* const base = static_cast<std::byte*>(region.base);
    for (const BlockMove& move : moves) {
      std::memcpy(base + move.to.value * bytes, base + move.from.value * bytes, bytes);
    }
    std::memset(base + spec.own_blocks() * bytes, 0x5a, spec.extra_blocks * bytes);
  }
  blocks_moved_ += static_cast<int64_t>(moves.size());
}

void DecodeProcess::Execute(TellMode& effect) {
  ToOrchestrator(ModeReported{{}, network_->Encoded(effect.told)});
}

void DecodeProcess::AddToLoad(WorkerLoad* load) const {
  const FormationFeeds::Generations generations = feeds_->GenerationsOf(this);
  load->groups_made = generations.made;
  load->groups_failed = generations.failed;
}

void DecodeProcess::Execute(OpenFeed& effect) {
  const uint64_t epoch = effect.epoch;
  const FormationFeeds::Told told{.arrived =
                                      [this](int rank, const FeedMessage& message) {
                                        Dispatch(FeedArrived{rank, message});
                                      },
                                  .lost =
                                      [this](int rank, const absl::Status& why) {
                                        Dispatch(FeedLost{rank, why});
                                      }};
  DispatchAfter(0, FeedOpened{epoch, feeds_->Open(this, effect, told)});
}
void DecodeProcess::Execute(CloseFeed& effect) { feeds_->Close(this, effect.broken, effect.why); }
void DecodeProcess::Execute(SendOnFeed& effect) {
  if (auto* reserved = std::get_if<FeedReserved>(&effect.message)) {
    for (const BlockId block : reserved->blocks) {
      transfers_->CheckUse(PlaceOf(block), {reserved->id, reserved->request_epoch}, "kept for");
    }
    AddGrant(effect.grant, &reserved->memory);
  }
  feeds_->Send(this, effect.rank, effect.message);
}
void DecodeProcess::Execute(TellFormation& effect) {
  const FormationTold& told = effect.told;
  const std::optional<FormationWatch::Part> part = watch_->PartOf(this, told.epoch);
  watch_->Told(this, told);
  const auto tell = [this, told] {
    ToOrchestrator(FormationReported{{}, network_->Encoded(told)});
  };
  if (!part.has_value()) return tell();
  const bool ended = told.phase == FormationTold::Phase::kEnded;
  if (ended && !part->bound) return tell();  // it gives up what was only prepared
  watch_->Pass(ended                                           ? FaultPoint::kEnded
               : told.phase == FormationTold::Phase::kPrepared ? FaultPoint::kPrepared
                                                               : FaultPoint::kBound,
               this, *part, tell);
}
void DecodeProcess::Serve(const OpenTransferRequest& request,
                          std::function<void(OpenTransferReply)> reply) {
  const CallId call = grants_.Add(NextCall(), std::move(reply));
  granted_to_[call] = {request.id, request.epoch};
  Dispatch(OpenTransferCalled{call, request});
}
void DecodeProcess::Serve(const RenewRequest& request, std::function<void(RenewReply)> reply) {
  Dispatch(RenewCalled{renews_.Add(NextCall(), std::move(reply)), request});
}
void DecodeProcess::Serve(const AcquireStagingBufferRequest& request, const std::string& writer,
                          std::function<void(AcquireStagingBufferReply)> reply) {
  const CallId call = acquisitions_.Add(NextCall(), std::move(reply));
  asked_by_[call] = {request.id, request.epoch, writer};
  Dispatch(AcquireStagingBufferCalled{call, request});
}
void DecodeProcess::Serve(const TakePartRequest& request,
                          std::function<void(TakePartReply)> reply) {
  Dispatch(TakePartCalled{parts_.Add(NextCall(), std::move(reply)), request});
}
void DecodeProcess::Serve(const ReleaseStagingBufferRequest& request,
                          std::function<void(ReleaseStagingBufferReply)> reply) {
  Dispatch(ReleaseStagingBufferCalled{releases_.Add(NextCall(), std::move(reply)), request});
}
void DecodeProcess::Serve(const CommitRequest& request, std::function<void(CommitReply)> reply) {
  Dispatch(CommitCalled{commits_.Add(NextCall(), std::move(reply)), request});
}
void DecodeProcess::Serve(const AbortRequest& request) { Dispatch(AbortCalled{request}); }

void DecodeProcess::Execute(TellOpened& effect) {
  ToOrchestrator(network_->Encoded(effect.opened));
}
void DecodeProcess::Execute(AnswerOpenTransfer& effect) {
  const Transfers::Owner owner = granted_to_.at(effect.call);
  granted_to_.erase(effect.call);
  if (effect.reply.status.ok()) {
    Epoch& newest = epochs_[owner.id];
    verdict_->Require(owner.epoch >= newest, "an epoch went back");
    newest = owner.epoch;
    granted_.emplace(owner.id, owner.epoch);
    granted_to_groups_ += effect.reply.others.empty() ? 0 : 1;
    for (BlockId block : effect.reply.blocks) {
      transfers_->CheckUse(PlaceOf(block), owner, "granted to");
    }
    AddGrant(effect.grant, &effect.reply.memory);
  }
  grants_.Answer(effect.call, std::move(effect.reply), verdict_);
}
// As DescribeUnder does (engine/transport/description.h).
void DecodeProcess::AddGrant(GrantId grant, std::string* memory) {
  if (grant == GrantId{}) return;
  transfers_->Open({endpoint(), generation(), grant.value});
  absl::StrAppend(memory, "!", grant.value);
}
void DecodeProcess::Execute(CloseGrant& effect) {
  transfers_->Close({endpoint(), generation(), effect.grant.value}, [this, mine = generation(),
                                                                     grant = effect.grant] {
    if (generation() != mine || !alive()) return;
    After(network_->random().Between(0, 300), [this, grant] { Dispatch(GrantClosed{grant}); });
  });
}
void DecodeProcess::Execute(AnswerRenew& effect) {
  renews_.Answer(effect.call, std::move(effect.reply), verdict_);
}
void DecodeProcess::Execute(AnswerAcquireStagingBuffer& effect) {
  const Transfers::Owner writer = asked_by_.at(effect.call);
  asked_by_.erase(effect.call);
  if (effect.reply.status.ok()) {
    const std::string& memory = effect.reply.memory;
    const int buffer = std::stoi(memory.substr(memory.rfind('#') + 1));
    for (int32_t slot = 0; slot < network_->scenario().staging_slots; ++slot) {
      transfers_->CheckUse(PlaceOf({PlaceOfSlot(buffer, slot)}), writer, "lent to");
    }
    AddGrant(effect.grant, &effect.reply.memory);
  }
  acquisitions_.Answer(effect.call, std::move(effect.reply), verdict_);
}
void DecodeProcess::Execute(AnswerTakePart& effect) {
  parts_.Answer(effect.call, std::move(effect.reply), verdict_);
}
void DecodeProcess::Execute(AnswerReleaseStagingBuffer& effect) {
  releases_.Answer(effect.call, std::move(effect.reply), verdict_);
}

// Takes a while. The bytes are read at its beginning or at its end; nobody may put into the slots
// meanwhile, nor the blocks serve another.
void DecodeProcess::Execute(CopyPart& effect) {
  const Transfers::Owner owner{effect.id, effect.epoch};
  const bool at_end = network_->random().Chance(0.5);
  const auto slots_are_still = [this, effect] {
    for (const StagedBlock& block : effect.part) {
      verdict_->Require(!transfers_->Under(PlaceOf({PlaceOfSlot(effect.buffer, block.slot)})),
                        "a slot is put into while it is copied out");
    }
  };
  const auto copy = [engine = engine_, buffer = buffers_[effect.buffer], effect] {
    const int64_t bytes = engine->Spec().kv.BlockBytes();
    for (const StagedBlock& block : effect.part) {
      const BlockId to = (*effect.blocks)[block.global];
      std::memcpy(static_cast<std::byte*>(engine->KvRegions()[block.layer].base) + to.value * bytes,
                  buffer->data() + block.slot * bytes, bytes);
    }
  };
  std::vector<Transfers::Place> places;
  for (const StagedBlock& block : effect.part) {
    places.push_back(PlaceOf((*effect.blocks)[block.global]));
    transfers_->Begin(places.back(), owner);
  }
  slots_are_still();
  if (!at_end) copy();
  const uint64_t mine = generation();
  VirtualTime& time = network_->time();
  time.At(time.now() + network_->random().Between(10, 400), [=, this, number = effect.copy] {
    for (const Transfers::Place& place : places) transfers_->End(place, owner);
    if (generation() != mine || !alive()) return;
    slots_are_still();
    if (at_end) copy();
    ++parts_copied_;
    Dispatch(PartCopied{number, absl::OkStatus()});
  });
}

void DecodeProcess::Execute(AnswerCommit& effect) {
  commits_.Answer(effect.call, std::move(effect.reply), verdict_);
}

void DecodeProcess::Execute(EmitToken& effect) { tokens_->Emit(effect); }
void DecodeProcess::Execute(EndStream& effect) { tokens_->End(effect); }

// Only the choices of one answer share blocks: whole ones of their prompt, in the same places.
void DecodeProcess::CheckShared(const StepSequence& sequence, UsedBlocks* used) {
  const RequestId first = sequence.spec->prompt_of.value_or(sequence.id);
  const int64_t unit = engine_->Spec().kv.block_tokens;
  const int64_t shared = (PromptTokens(*sequence.spec) - 1) / unit;
  for (size_t i = 0; i < sequence.blocks->size(); ++i) {
    const std::pair<RequestId, size_t> place{first, i};
    const auto [it, fresh] = used->emplace((*sequence.blocks)[i].value, place);
    const bool may = it->second == place && static_cast<int64_t>(i) < shared;
    verdict_->Require(fresh || may, "two sequences share a block");
  }
}

void DecodeProcess::Execute(RunStep& effect) {
  verdict_->Require(!engine_thread_.full(), "three steps in flight");
  UsedBlocks used;
  for (const StepSequence& sequence : effect.sequences) {
    // A step of the group that all ranks have committed to runs at all of them, also with what has
    // ended since.
    if (!effect.group.has_value()) CheckNotEnded(sequence.id, sequence.epoch, "computes");
    resumed_ += sequence.position == 0 && !effect.group.has_value();
    CheckShared(sequence, &used);
    for (BlockId block : *sequence.blocks) {
      verdict_->Require(!transfers_->Under(PlaceOf(block)), "a step reads a block being written");
    }
  }
  const auto done = [this, used = std::move(used)](StepDone ended) {
    for (const auto& [block, place] : used) {
      verdict_->Require(!transfers_->Under(PlaceOf({block})),
                        "a block is written while a step in flight has it");
    }
    Dispatch(std::move(ended));
  };
  if (effect.group.has_value()) {
    return engine_thread_.RunInGroup(network_, this, engine_, effect, group_steps_,
                                     feeds_->PlaceOf(this), done);
  }
  engine_thread_.Run(
      network_, this, engine_, effect, [](const RunStep&, int) {}, done);
}

}  // namespace skein::sim
