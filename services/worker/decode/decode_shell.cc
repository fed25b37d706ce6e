#include "services/worker/decode/decode_shell.h"

#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/transport/description.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/log/log.h"
#include "services/rpc/credentials.h"
#include "services/rpc/status_map.h"
#include "services/worker/engine/sampling_codec.h"

namespace skein::services {
namespace {

constexpr auto kPumpWait = std::chrono::milliseconds(100);

grpc::Status TokenStreamHalfClosed() {
  return {
      grpc::StatusCode::INVALID_ARGUMENT,
      "a message is not of this method's type, or the stream was half-closed: cancel the call to "
      "end it"};
}

}  // namespace

DecodeShell::DecodeShell(WorkerEngine* engine, const std::string& orchestrator, size_t inbox)
    : WorkerShell(engine, orchestrator, inbox), copier_(inbox) {
  if (engine->fabric == nullptr) return;
  groups_.emplace(engine->fabric.get());
  if (engine->sharing == nullptr) return;
  sharing_.emplace(
      engine->sharing,
      SharedWeights::Peers{
          .open = [this](const scheduler::SharingMembers& members) { return OpenSharing(members); },
          .send =
              [this](int rank, const std::string& message) {
                loop_.Post([this, rank, message] {
                  if (feed_.has_value()) feed_->SendSharing(rank, message);
                });
              },
          .done = [this](const scheduler::SharingDone& done) { Post(done, Loop::kHelp); }});
}

DecodeShell::~DecodeShell() { Stop(); }

void DecodeShell::Start(const scheduler::DecodeConfig& config, std::function<void()> drained,
                        std::function<void(const scheduler::EngineFailed&)> engine_failed) {
  StartLink(std::move(drained), std::move(engine_failed));
  last_words_us_ = config.engine.last_words_us;
  tokens_.SetProcess(config.membership.identity.incarnation);
  permits_.SetProcess(config.membership.identity.incarnation);
  runner_ = std::make_unique<EngineRunner>(
      engine_->engine.get(), EngineRunner::Told{.ended = [this](bool idle) { StepEnded(idle); }},
      EngineRunner::Records{.counts = &step_counts_});
  // The target of puts: where the wire has no remote writes, polling applies them.
  progress_ = std::make_unique<ProgressThread>(
      [this] {
        std::vector<engine::TransferCompletion> none;
        engine_->transport->Poll(16, kPumpWait, &none);
        for (const GrantId grant : engine_->transport->TakeClosed()) {
          Post(scheduler::GrantClosed{grant}, Loop::kHelpOnce);
        }
      },
      [this] { engine_->transport->Wake(); });
  copier_.Start(
      "copier", [] { return INT64_MAX; }, [] {});
  scheduler::DecodeConfig known = config;
  if (sharing_.has_value()) known.group.can_share = sharing_->CanShare();
  StartCore("decode", known, scheduler::Tick{});
}

void DecodeShell::StopParts() {
  if (feed_.has_value()) feed_->context()->Abort(absl::UnavailableError("the worker is stopping"));
  feed_.reset();
  if (sharing_.has_value()) sharing_->Stop();
  const grpc::Status gone = ToGrpc(absl::UnavailableError("the worker is stopping"));
  grants_.AbortAll(gone);
  renews_.AbortAll(gone);
  acquisitions_.AbortAll(gone);
  parts_.AbortAll(gone);
  releases_.AbortAll(gone);
  commits_.AbortAll(gone);
  for (auto& [id, call] : token_calls_) call->Close(gone);
  token_calls_.clear();
  // After the answers: a copy hangs when the engine does.
  copier_.Stop();
}

void DecodeShell::Registered(const scheduler::RegisterReply& reply) {
  tokens_.SetLease(reply.lease_us);
  const absl::Status taken = permits_.TakeKey(reply.generation.number, reply.permit_key);
  if (!taken.ok()) LogWarning("no permits", {{"reason", std::string(taken.message())}});
}

absl::Status DecodeShell::Take(const v1::OrchestratorMessage& message) {
  if (message.has_announce()) {
    auto announce = FromProto(message.announce());
    if (!announce.ok()) return announce.status();
    absl::Status checked = CheckSpec(*announce->spec, engine_->engine->Spec().vocab_size);
    Handle(scheduler::AnnounceCalled{*std::move(announce), std::move(checked)});
    return absl::OkStatus();
  }
  if (message.has_withdraw()) {
    auto withdraw = FromProto(message.withdraw());
    if (!withdraw.ok()) return withdraw.status();
    Handle(scheduler::WithdrawCalled{*std::move(withdraw)});
    return absl::OkStatus();
  }
  if (message.has_group()) {
    const auto order = FromProto(message.group());
    if (!order.ok()) return order.status();
    if (groups_.has_value()) groups_->Take(*order);
    return absl::OkStatus();
  }
  if (message.has_prepare_formation()) return TakeFormation(message.prepare_formation());
  if (message.has_commit_formation()) return TakeFormation(message.commit_formation());
  if (message.has_end_formation()) return TakeFormation(message.end_formation());
  if (message.has_mode_order()) return TakeFormation(message.mode_order());
  return absl::InvalidArgumentError("message: a decode-worker does not take this kind");
}

void DecodeShell::AddToLoad(ShellLoad* load) {
  if (!groups_.has_value()) return;
  const NodeGroups::Generations generations = groups_->generations();
  load->groups_made = generations.made;
  load->groups_failed = generations.failed;
}

bool DecodeShell::OpenTransfer(scheduler::OpenTransferRequest request,
                               Calls<v1::OpenTransferResponse>::Call call) {
  return loop_.TryPost(
      [this, request = std::move(request), call] {
        const uint64_t id = NextCall();
        grants_.Add(id, call);
        Handle(scheduler::OpenTransferCalled{{id}, request});
      },
      Loop::kHelp);
}

bool DecodeShell::Renew(scheduler::RenewRequest request, Calls<v1::RenewResponse>::Call call) {
  return loop_.TryPostFirst([this, request, call] {
    const uint64_t id = NextCall();
    renews_.Add(id, call);
    Handle(scheduler::RenewCalled{{id}, request});
  });
}

bool DecodeShell::AcquireStagingBuffer(const scheduler::AcquireStagingBufferRequest& request,
                                       Calls<v1::AcquireStagingBufferResponse>::Call call) {
  return loop_.TryPost([this, request, call] {
    const uint64_t id = NextCall();
    acquisitions_.Add(id, call);
    Handle(scheduler::AcquireStagingBufferCalled{{id}, request});
  });
}

bool DecodeShell::TakePart(scheduler::TakePartRequest request,
                           Calls<v1::TakePartResponse>::Call call) {
  return loop_.TryPost([this, request = std::move(request), call] {
    const uint64_t id = NextCall();
    parts_.Add(id, call);
    Handle(scheduler::TakePartCalled{{id}, request});
  });
}

bool DecodeShell::ReleaseStagingBuffer(const scheduler::ReleaseStagingBufferRequest& request,
                                       Calls<v1::ReleaseStagingBufferResponse>::Call call) {
  return loop_.TryPost([this, request, call] {
    const uint64_t id = NextCall();
    releases_.Add(id, call);
    Handle(scheduler::ReleaseStagingBufferCalled{{id}, request});
  });
}

bool DecodeShell::Commit(scheduler::CommitRequest request, Calls<v1::CommitResponse>::Call call) {
  return loop_.TryPost(
      [this, request = std::move(request), call] {
        const uint64_t id = NextCall();
        commits_.Add(id, call);
        Handle(scheduler::CommitCalled{{id}, request});
      },
      Loop::kHelp);
}

DecodeShell::TokenStream* DecodeShell::OpenTokenStream(grpc::CallbackServerContext* context) {
  const scheduler::TokenStreamId id{next_token_stream_.fetch_add(1)};
  auto stream = TokenStream::Make(
      context, [this](std::function<void()> hook) { loop_.Post(std::move(hook), Loop::kHelp); },
      TokenStreamHalfClosed());
  const absl::Status caller = CheckCaller(*context);
  const bool taken = caller.ok() && loop_.TryPost([this, id, stream] {
    if (token_calls_.size() >= kTokenStreamsMax) {
      return stream->Close({grpc::StatusCode::RESOURCE_EXHAUSTED,
                            absl::StrCat("token stream limit reached (", kTokenStreamsMax, ")")});
    }
    token_calls_.emplace(id, stream);
  });
  stream->Open({.message = [this, id](const auto& request) { OnTokenRequest(id, request); },
                .ended = [this, id] { CloseTokenStream(id); },
                .writable = [this, id] { SendTokens(id); }});
  if (!taken) {
    stream->Close(ToGrpc(caller.ok() ? absl::ResourceExhaustedError("the inbox is full") : caller));
  }
  return stream.get();
}

void DecodeShell::OnTokenRequest(scheduler::TokenStreamId stream,
                                 const v1::TokenStreamRequest& message) {
  const auto it = token_calls_.find(stream);
  if (it == token_calls_.end()) return;
  const absl::StatusOr<scheduler::TokenStreamRequest> request = FromProto(message);
  std::vector<scheduler::DecodeEvent> events;
  absl::Status status = request.status();
  if (status.ok()) status = tokens_.Take(stream, *request, &events);
  if (!status.ok()) {
    it->second->Close(ToGrpc(status));
    return CloseTokenStream(stream);
  }
  for (scheduler::DecodeEvent& event : events) Queue(std::move(event));
  HandleQueued();
}

void DecodeShell::CloseTokenStream(scheduler::TokenStreamId stream) {
  token_calls_.erase(stream);
  for (scheduler::DecodeEvent& event : tokens_.Close(stream, MonotonicUs())) {
    Queue(std::move(event));
  }
  HandleQueued();
}

void DecodeShell::SendTokens() {
  for (const scheduler::TokenStreamId stream : tokens_.TakeReady()) SendTokens(stream);
  TellDrained();
}

void DecodeShell::SendTokens(scheduler::TokenStreamId stream) {
  const auto it = token_calls_.find(stream);
  if (it == token_calls_.end()) return;
  while (tokens_.HasNext(stream) && it->second->Writable()) {
    it->second->Write(ToProto(tokens_.Next(stream)));
  }
  TellDrained();
}

int64_t DecodeShell::PartsDeadline() const {
  const bool awaits_tokens = core_drained_ && !drained_told_;
  return std::min(tokens_.NextDeadline(), awaits_tokens ? tokens_await_until_us_ : INT64_MAX);
}

void DecodeShell::TickParts() {
  for (scheduler::DecodeEvent& event : tokens_.Tick(MonotonicUs())) Queue(std::move(event));
  TellDrained();  // the core's tick follows, and handles these
}

// The core may stay longer, to tell an orchestrator; a router that takes no tokens holds up nobody.
void DecodeShell::On(const scheduler::EngineFailed& effect) {
  tokens_await_until_us_ = MonotonicUs() + last_words_us_;
  WorkerShell::On(effect);
}

// What is being written is sent before Stop ends its stream.
void DecodeShell::TellDrained() {
  const bool taken = tokens_.sequences() == 0 || MonotonicUs() >= tokens_await_until_us_;
  if (!core_drained_ || !taken) return;
  if (!std::exchange(drained_told_, true)) drained_();
}

bool DecodeShell::Abort(scheduler::AbortRequest request, grpc::ServerUnaryReactor* call) {
  return loop_.TryPost([this, request = std::move(request), call] {
    Handle(scheduler::AbortCalled{request});
    call->Finish(ToGrpc(core_->CheckEpoch(request.epoch)));
  });
}

void DecodeShell::On(const scheduler::TellOpened& effect) {
  v1::WorkerMessage message;
  *message.mutable_opened() = ToProto(effect.opened);
  orchestrator_.Send(std::move(message));
}

// ---- the bound group ----

void DecodeShell::On(const scheduler::OpenFeed& effect) {
  Queue(scheduler::FeedOpened{effect.epoch, OpenGroup(effect)});
}

absl::StatusOr<std::shared_ptr<engine::GroupContext>> DecodeShell::ContextOf(uint64_t generation,
                                                                             int32_t first,
                                                                             int32_t size) const {
  if (!groups_.has_value()) {
    return absl::FailedPreconditionError("this instance has no links to others of its node");
  }
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), first);
  absl::StatusOr<std::shared_ptr<engine::GroupContext>> context = groups_->contexts().Take(members);
  if (!context.ok()) return context.status();
  if ((*context)->generation() != generation) {
    return absl::FailedPreconditionError(absl::StrCat("generation: the communicators are of ",
                                                      (*context)->generation(), ", not of ",
                                                      generation));
  }
  if ((*context)->broken()) return absl::UnavailableError("the communicators have broken");
  return context;
}

absl::StatusOr<int> DecodeShell::OpenGroup(const scheduler::OpenFeed& effect) {
  if (effect.size > engine_->group_ranks_max) {
    return absl::FailedPreconditionError(
        absl::StrCat("size: ", effect.size, " instances, but this model's heads can be dealt to ",
                     engine_->group_ranks_max, " at most"));
  }
  auto context = ContextOf(effect.generation, effect.first, effect.size);
  if (!context.ok()) return context.status();
  feed_.reset();
  // Of a former feed nothing counts, but for deaths in the same group, which are told only once.
  const auto handle = [this, of = *context](auto event) {
    loop_.Post([this, of, event = std::move(event)]() mutable {
      if (feed_.has_value() && feed_->context() == of) Handle(std::move(event));
    });
  };
  feed_.emplace(*context,
                GroupFeed::Told{.arrived =
                                    [handle](int rank, scheduler::FeedMessage message) {
                                      handle(scheduler::FeedArrived{rank, std::move(message)});
                                    },
                                .lost =
                                    [handle](int rank, const absl::Status& why) {
                                      handle(scheduler::FeedLost{rank, why});
                                    }});
  runner_->SetGroup(*context);
  return (*context)->rank();
}

// A step in flight ends with its communicators.
void DecodeShell::On(const scheduler::CloseFeed& effect) {
  if (!feed_.has_value()) return;
  if (effect.broken) feed_->context()->Abort(effect.why);
  feed_.reset();
  runner_->SetGroup(nullptr);
}

void DecodeShell::On(scheduler::SendOnFeed& effect) {
  if (auto* reserved = std::get_if<scheduler::FeedReserved>(&effect.message)) {
    reserved->memory = MemoryUnder(effect.grant, reserved->memory);
  }
  if (feed_.has_value()) feed_->Send(effect.rank, effect.message);
}

void DecodeShell::On(const scheduler::TellFormation& effect) {
  const scheduler::FormationTold& told = effect.told;
  using Phase = scheduler::FormationTold::Phase;
  LogInfo(told.phase == Phase::kPrepared ? "prepared to bind"
          : told.phase == Phase::kBound  ? "bound"
                                         : "works alone",
          {{"formation_epoch", told.epoch}, {"reason", std::string(told.why.message())}});
  v1::WorkerMessage message;
  *message.mutable_formation() = ToProto(told);
  orchestrator_.Send(std::move(message));
}

void DecodeShell::On(const scheduler::TellMode& effect) {
  v1::WorkerMessage message;
  *message.mutable_mode() = ToProto(effect.told);
  orchestrator_.Send(std::move(message));
}

// A context tells only once that a member's process has ended, and cannot be used afterwards.
absl::StatusOr<int> DecodeShell::OpenSharing(const scheduler::SharingMembers& members) {
  const auto context = ContextOf(members.generation, members.first, members.size);
  if (!context.ok()) return context.status();
  feed_.reset();
  feed_.emplace(*context,
                GroupFeed::Told{.arrived = [](int, const scheduler::FeedMessage&) {},
                                .lost =
                                    [this, of = *context](int rank, const absl::Status& why) {
                                      of->Abort(why);
                                      sharing_->Lost(rank, why);
                                    },
                                .sharing =
                                    [this](int rank, const std::string& message) {
                                      sharing_->Arrived(rank, message);
                                    }});
  return (*context)->rank();
}

void DecodeShell::On(const scheduler::CallSharing& effect) {
  SKEIN_CHECK(sharing_.has_value());  // the core was told that it cannot
  std::visit([this](const auto& call) { sharing_->Begin(call); }, effect.call);
}

void DecodeShell::On(const scheduler::DecodeBegan& effect) {
  if (decode_queue_s_ != nullptr) {
    decode_queue_s_->Observe(static_cast<double>(effect.waited_us) * 1e-6);
  }
  const std::vector<std::string>& names = effect.spec->names;
  Log(Level::kDebug, "decode began",
      {{"request_id", ToString(effect.spec->id)},
       {"id", names.empty() ? std::string() : names.front()},
       {"decode_queue_us", effect.waited_us}});
}

std::string DecodeShell::MemoryUnder(GrantId grant, const std::string& memory) {
  if (grant == GrantId{}) return memory;
  engine_->transport->OpenGrant(grant);
  return engine::DescribeUnder(memory, grant);
}

void DecodeShell::On(const scheduler::CloseGrant& effect) {
  engine_->transport->CloseGrant(effect.grant);
}

void DecodeShell::On(const scheduler::AnswerOpenTransfer& effect) {
  if (absl::IsPermissionDenied(effect.reply.status)) permits_.CountMissing();
  grants_.Answer(effect.call.value, ToGrpc(effect.reply.status), [&](v1::OpenTransferResponse* r) {
    *r = ToProto(effect.reply);
    r->set_memory(MemoryUnder(effect.grant, effect.reply.memory));
  });
}

void DecodeShell::On(const scheduler::AnswerRenew& effect) {
  renews_.Answer(effect.call.value, ToGrpc(effect.reply.status),
                 [&](v1::RenewResponse* r) { *r = ToProto(effect.reply); });
}

void DecodeShell::On(const scheduler::AnswerAcquireStagingBuffer& effect) {
  acquisitions_.Answer(effect.call.value, ToGrpc(effect.reply.status),
                       [&](v1::AcquireStagingBufferResponse* r) {
                         r->set_memory(MemoryUnder(effect.grant, effect.reply.memory));
                       });
}

void DecodeShell::On(const scheduler::AnswerTakePart& effect) {
  parts_.Answer(effect.call.value, ToGrpc(effect.reply.status), [](v1::TakePartResponse*) {});
}

void DecodeShell::On(const scheduler::AnswerReleaseStagingBuffer& effect) {
  releases_.Answer(effect.call.value, ToGrpc(effect.reply.status),
                   [](v1::ReleaseStagingBufferResponse*) {});
}

void DecodeShell::On(const scheduler::CopyPart& effect) {
  copier_.Post([this, effect] {
    Post(scheduler::PartCopied{effect.copy,
                               engine_->staging->Take(effect.buffer, effect.part, *effect.blocks)});
  });
}

void DecodeShell::On(const scheduler::AnswerCommit& effect) {
  commits_.Answer(effect.call.value, ToGrpc(effect.reply.status), [](v1::CommitResponse*) {});
}

}  // namespace skein::services
