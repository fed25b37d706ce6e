#include "services/router/link/router_shell.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <variant>

#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/orchestrator_link/own_build.h"

namespace skein::services {
namespace {

using scheduler::RequestId;

constexpr std::chrono::seconds kGoodbyeTimeout{1};

void Fill(scheduler::HeardInstances::Told told, scheduler::RouterLoad* load) {
  load->heard = std::move(told.heard);
  load->not_heard = std::move(told.not_heard);
}

// In the spec, where workers find it. Two serialised messages, one after the other, are one.
void SetTraceparent(const std::string& traceparent, v1::SubmitRequest* submit) {
  if (traceparent.empty()) return;
  v1::RequestSpec changed;
  changed.set_traceparent(traceparent);
  submit->mutable_spec()->append(changed.SerializeAsString());
}

scheduler::RouterConfig ConfigOf(const RouterShellOptions& options) {
  scheduler::RouterConfig config = options.core;
  config.cells = options.orchestrators.size();
  config.head_of_attempt = EncodeAttempt;
  return config;
}

// A router that does not resume requests does not attach again, either.
scheduler::TimeUs ReattachWait(const scheduler::RouterConfig& config) {
  return config.resume_wait_us > 0 ? scheduler::TokenStreamClient::kReattachWaitUs : 0;
}

}  // namespace

RouterShell::RouterShell(const RouterShellOptions& options)
    : CoreShell(options.inbox),
      incarnation_(options.incarnation),
      config_(ConfigOf(options)),
      tokens_(scheduler::TokenStreamClient::kCredit, ReattachWait(config_)),
      router_count_(options.orchestrators.size()) {
  links_.reserve(options.orchestrators.size());
  for (const std::string& cell : options.orchestrators) {
    links_.push_back(std::make_unique<RouterLink>(
        incarnation_, &calls_, &loop_, &channels_, RouterLink::Cell{links_.size(), cell},
        [this](scheduler::RouterEvent event) { TakeFromLink(std::move(event)); }));
  }
}

RouterShell::~RouterShell() { Stop(); }

void RouterShell::TakeFromLink(scheduler::RouterEvent event) {
  const auto* welcomed = std::get_if<scheduler::Welcomed>(&event);
  if (welcomed != nullptr && welcomed->welcome.status.ok()) {
    tokens_.heard().SetLease(welcomed->cell, welcomed->welcome.lease_us);
  }
  if (const auto* told = std::get_if<scheduler::PlanUpdateReceived>(&event)) {
    if (RequestSpans* const spans = SpansOf(told->id)) spans->Answered(told->id, MonotonicUs());
  }
  CountRouters(event);
  Handle(std::move(event));
}

void RouterShell::CountRouters(const scheduler::RouterEvent& event) {
  const int64_t before = router_count_.now();
  if (const auto* welcomed = std::get_if<scheduler::Welcomed>(&event)) {
    const scheduler::RouterWelcome& welcome = welcomed->welcome;
    if (!welcome.status.ok()) return;
    router_count_.Welcomed(welcomed->cell, welcome.cell.routers, welcome.lease_us, MonotonicUs());
  } else if (const auto* taken = std::get_if<scheduler::RouterReportTaken>(&event)) {
    router_count_.Told(taken->cell, taken->report.routers, MonotonicUs());
  } else if (const auto* broken = std::get_if<scheduler::LinkBroken>(&event)) {
    router_count_.Lost(broken->cell);
  }
  if (router_count_.now() != before) watch_routers_(router_count_.now());
}

void RouterShell::Start() { StartCore("router", config_, scheduler::RouterTick{}); }

void RouterShell::Join(RouterLink::Self self) {
  self.identity.set_router(incarnation_);
  const scheduler::Join join{{.router = incarnation_,
                              .endpoint = self.identity.endpoint(),
                              .host = self.identity.host(),
                              .details = self.identity.SerializeAsString(),
                              .build = OwnBuild()}};
  loop_.RunAndWait([this, &self, &join] {
    for (const auto& link : links_) link->Introduce(self);
    Handle(join);
  });
}

absl::Status RouterShell::MayDrain() {
  absl::Status may;
  for (const auto& link : links_) may.Update(link->MayDrain());
  return may;
}

void RouterShell::OrderDrain(bool drain) {
  for (const auto& link : links_) link->OrderDrain(drain);
}

void RouterShell::Leave() {
  loop_.RunAndWait([this] {
    // Workers keep what is attached when a stream breaks, but not what is detached before.
    tokens_.DetachAll();
    Handle(scheduler::Leave{});
  });
  left_.get_future().wait_for(kGoodbyeTimeout);
  loop_.RunAndWait([this] {
    for (const auto& link : links_) link->Leave();
  });
}

void RouterShell::ReportSoon() { Post(scheduler::ReportSoon{}); }

void RouterShell::Stop() {
  loop_.RunAndWait([this] { CloseAll(); });
  // Cancelled calls end as soon as gRPC's threads come to them; nothing outside is waited for.
  // Until then they use the loop.
  calls_.CancelAndWait();
  loop_.Stop();
}

void RouterShell::TellStop() {
  loop_.RunAndWait([this] {
    std::set<std::shared_ptr<RequestListener>> listeners;  // one may have several requests
    for (const auto& [id, request] : requests_) listeners.insert(request.listener);
    for (const auto& listener : listeners) {
      if (listener != nullptr) listener->OnStop();
    }
  });
}

void RouterShell::CloseAll() {
  StopCore();  // nothing is opened that nobody would close
  for (const auto& link : links_) link->Close();
  requests_.clear();
  for (auto& [id, call] : token_calls_) call->Close();
  token_calls_.clear();
}

void RouterShell::Submit(const scheduler::RequestSpec& spec, std::string traceparent,
                         std::shared_ptr<RequestListener> listener, scheduler::PrefillShape shape,
                         uint64_t affinity, std::shared_ptr<RequestSpans> spans) {
  Request& request = requests_[spec.id];
  request.traceparent = std::move(traceparent);
  request.listener = std::move(listener);
  request.spans = std::move(spans);
  Handle(scheduler::Arrived{Encode(spec), shape, affinity});
}

void RouterShell::Cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  it->second.listener.reset();
  Handle(scheduler::ClientGone{id});
}

void RouterShell::StopMatched(RequestId id) {
  QueueFirst(scheduler::StopMatched{id});  // before tokens that came in the same message
  HandleQueued();
}

void RouterShell::SetPaused(RequestId id, bool paused) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  it->second.paused = paused;
  tokens_.SetPaused(it->second.attempt, paused);
  SendTokenRequests();
}

scheduler::RouterSnapshot RouterShell::Snapshot() const {
  std::lock_guard lock(published_mu_);
  return published_;
}

void RouterShell::Decided() {
  const uint64_t version = core_->snapshot_version();
  if (std::exchange(published_version_, version) == version) return;
  std::lock_guard lock(published_mu_);
  published_ = core_->Snapshot();
}

void RouterShell::On(const scheduler::Reject& effect) {
  if (const auto listener = Forget(effect.id)) listener->OnReject(effect);
}

void RouterShell::On(const scheduler::End& effect) {
  if (const auto listener = Forget(effect.id)) listener->OnEnd(effect);
}

std::shared_ptr<RequestListener> RouterShell::Forget(RequestId id) {
  auto forgotten = requests_.extract(id);
  return forgotten.empty() ? nullptr : std::move(forgotten.mapped().listener);
}

void RouterShell::On(const scheduler::DeliverToken& effect) {
  const auto it = requests_.find(effect.id);
  if (it == requests_.end()) return;
  if (it->second.spans != nullptr) it->second.spans->Received(it->second.attempt, message_us_);
  const std::shared_ptr<RequestListener> listener = it->second.listener;
  if (listener != nullptr) listener->OnToken(effect);
}

void RouterShell::On(const scheduler::SendSubmit& effect) {
  v1::RouterMessage message;
  v1::SubmitRequest& submit = *message.mutable_submit();
  submit = ToProto(scheduler::SubmitCalled{effect.spec, effect.shape, effect.accepted,
                                           effect.failed_engines, effect.moves});
  const auto it = requests_.find(effect.spec->id.First());
  if (it != requests_.end()) {
    if (it->second.spans != nullptr) {
      const int64_t now = MonotonicUs();
      it->second.spans->Enter(RequestPhase::kPlan, now);
      it->second.traceparent = it->second.spans->BeginAttempt(effect.spec->id, effect.cell, now);
    }
    submit.set_traceparent(it->second.traceparent);
    SetTraceparent(it->second.traceparent, &submit);
  }
  links_[effect.cell]->Send(std::move(message));
}

void RouterShell::On(const scheduler::SendRouterEnd& effect) {
  if (RequestSpans* const spans = SpansOf(effect.end.id)) {
    spans->EndAttempt(effect.end.id, effect.end.why, MonotonicUs());
  }
  v1::RouterMessage message;
  *message.mutable_ended() = ToProto(effect.end);
  links_[effect.cell]->Send(std::move(message));
}

RequestSpans* RouterShell::SpansOf(RequestId id) {
  const auto it = requests_.find(id.First());
  return it == requests_.end() ? nullptr : it->second.spans.get();
}

void RouterShell::KeepTrace(const TraceId& trace) {
  for (const auto& link : links_) link->KeepTrace(trace);
}

void RouterShell::On(const scheduler::SendRouterGoodbye& effect) {
  v1::RouterMessage message;
  message.mutable_goodbye();
  links_[effect.cell]->Send(std::move(message));
}

void RouterShell::On(scheduler::OpenLink& effect) {
  Fill(tokens_.heard().TellAll(effect.cell), &effect.hello.load);
  links_[effect.cell]->Open(effect.hello);
}

void RouterShell::On(scheduler::SendRouterReport& effect) {
  Fill(tokens_.heard().TellChanges(effect.cell), &effect.load);
  links_[effect.cell]->Report(effect.load);
}

void RouterShell::On(const scheduler::OpenTokens& effect) {
  const auto it = requests_.find(effect.id.First());
  const bool known = it != requests_.end();  // not if an effect before cancelled it: it is detached
  if (known) it->second.attempt = effect.id;
  if (known && it->second.spans != nullptr) {
    const int64_t now = MonotonicUs();
    it->second.spans->Enter(RequestPhase::kFirstToken, now);
    it->second.spans->Received(effect.id, now);
    it->second.spans->Event(effect.id, "attach",
                            {{"skein.decode_endpoint", effect.endpoint},
                             {"skein.epoch", static_cast<int64_t>(effect.epoch.value)},
                             {"skein.ahead", effect.ahead}},
                            now);
  }
  tokens_.Attach(
      effect.id, effect.epoch, {effect.endpoint, {effect.cell, effect.decode}, effect.ahead},
      known ? it->second.traceparent : std::string(), known && it->second.paused, MonotonicUs());
}

void RouterShell::On(const scheduler::CloseTokens& effect) {
  tokens_.Detach(effect.id, effect.epoch);
}

void RouterShell::On(const scheduler::RequestAccepted& effect) {
  const auto it = requests_.find(effect.id);
  const auto listener = it == requests_.end() ? nullptr : it->second.listener;
  if (listener != nullptr) listener->OnAccepted(effect.id);
}

void RouterShell::SendTokenRequests() {
  for (const auto& open : tokens_.TakeOpens()) OpenTokenStream(open);
  for (const scheduler::TokenStreamId stream : tokens_.TakeReady()) SendTokenRequests(stream);
}

void RouterShell::SendTokenRequests(scheduler::TokenStreamId stream) {
  const auto it = token_calls_.find(stream);
  if (it == token_calls_.end()) return;
  if (!tokens_.HasNext(stream) || !it->second->Writable()) return;
  it->second->Write(ToProto(tokens_.Next(stream)));
}

void RouterShell::OpenTokenStream(const scheduler::TokenStreamClient::Open& open) {
  const scheduler::TokenStreamId stream = open.stream;
  const auto stub =
      v1::DecodeWorker::NewStub(channels_.Get(open.endpoint, {tls::Role::kDecodeWorker}));
  token_calls_[stream] = TokenStream::Open(
      "decode-worker", &calls_,
      [this](std::function<void()> hook) { loop_.Post(std::move(hook), Loop::kHelp); },
      {.message = [this, stream](const v1::TokenBatch& batch) { OnTokenBatch(stream, batch); },
       .ended = [this, stream](const absl::Status& end) { OnTokenStreamEnded(stream, end); },
       .writable = [this, stream] { SendTokenRequests(stream); }},
      [&stub](auto* context, auto* reactor) { stub->async()->StreamTokens(context, reactor); });
}

void RouterShell::OnTokenBatch(scheduler::TokenStreamId stream, const v1::TokenBatch& message) {
  auto batch = FromProto(message);
  if (!batch.ok()) {
    token_calls_.at(stream)->Close();
    return OnTokenStreamEnded(stream, MalformedAnswer("decode-worker", batch.status()));
  }
  message_us_ = MonotonicUs();
  tokens_.Received(stream, message_us_);
  for (scheduler::SequenceTokens& tokens : batch->sequences) {
    const auto part = tokens_.Receive(stream, tokens);
    if (part.attached) OnTokens(std::move(tokens), part.repeated);
  }
  SendTokenRequests();  // credit
}

void RouterShell::OnTokens(scheduler::SequenceTokens tokens, int64_t repeated) {
  for (size_t i = 0; i < tokens.tokens.size(); ++i) {
    Queue(scheduler::TokenReceived{
        tokens.id, tokens.epoch, tokens.first_index + static_cast<int64_t>(i), tokens.tokens[i],
        tokens.payloads.empty() ? std::string() : std::move(tokens.payloads[i]),
        std::exchange(tokens.prompt_logprobs, {}), tokens.times,
        /*again=*/static_cast<int64_t>(i) < repeated});
  }
  if (tokens.finished.has_value()) {
    scheduler::FinishedTokens& finished = *tokens.finished;
    Queue(scheduler::FinishedReceived{tokens.id, tokens.epoch, finished.reason,
                                      std::move(finished.status), finished.output_tokens,
                                      finished.stop_token, std::move(tokens.prompt_logprobs),
                                      tokens.times, finished.engine_failed});
  } else if (tokens.leaving) {
    Queue(scheduler::StreamLeaving{tokens.id, tokens.epoch});
  }
  HandleQueued();
}

// The core's tick follows, and handles these.
void RouterShell::TickParts() {
  for (const auto& request : tokens_.Tick(MonotonicUs())) {
    const char* const why =
        request.unreached ? "the decode-worker was not reached lately, and is not tried now"
                          : "the token stream broke, and the decode-worker did not answer on the "
                            "next one in time";
    Queue(scheduler::TokenStreamLost{request.id, request.epoch, absl::UnavailableError(why),
                                     request.unreached});
  }
}

// What ended a stream is no answer to any of its requests: each may be tried elsewhere.
void RouterShell::OnTokenStreamEnded(scheduler::TokenStreamId stream, const absl::Status& status) {
  token_calls_.erase(stream);
  const absl::Status lost =
      absl::UnavailableError(status.ok() ? "the token stream ended early" : status.message());
  for (const auto& request : tokens_.Ended(stream, MonotonicUs())) {
    Queue(scheduler::TokenStreamLost{request.id, request.epoch, lost});
  }
  HandleQueued();
}

}  // namespace skein::services
