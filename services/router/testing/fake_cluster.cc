#include "services/router/testing/fake_cluster.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <variant>

#include "services/codec/codec.h"
#include "services/rpc/status_map.h"

namespace skein::services::testing {
namespace {

v1::RequestSpec SpecOf(const v1::SubmitRequest& submit) {
  v1::RequestSpec spec;
  if (!spec.ParseFromString(submit.spec())) std::abort();
  return spec;
}

}  // namespace

std::vector<int32_t> PromptOf(const v1::RequestSpec& spec) { return UnpackTokens(spec.prompt()); }

v1::SamplingParams SamplingOf(const v1::RequestSpec& spec) {
  v1::SamplingParams sampling;
  if (!sampling.ParseFromString(spec.sampling())) std::abort();
  return sampling;
}

v1::SampledToken Sampled(int32_t token, float logprob) {
  v1::SampledToken sampled;
  sampled.set_token(token);
  sampled.set_logprob(logprob);
  return sampled;
}

Script Says(const std::string& text) {
  Script script;
  for (const char c : text) script.tokens.push_back(Sampled(static_cast<unsigned char>(c)));
  return script;
}

FakeCluster::FakeCluster(std::string model, ScriptFn script, scheduler::TimeUs hold_us,
                         std::vector<grpc::Service*> more)
    : model_(std::move(model)), script_(std::move(script)), tokens_(hold_us) {
  more.push_back(static_cast<v1::Orchestrator::CallbackService*>(this));
  more.push_back(static_cast<v1::DecodeWorker::CallbackService*>(this));
  auto rpc = ServeRpc("127.0.0.1:0", more);
  if (!rpc.ok()) std::abort();
  rpc_ = *std::move(rpc);
}

FakeCluster::~FakeCluster() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [session, router] : routers_) router.stream->Close(grpc::Status::OK);
    for (auto& [id, call] : token_calls_) call->Close(grpc::Status::OK);
  }
  rpc_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
}

std::vector<v1::RequestSpec> FakeCluster::specs() {
  std::lock_guard<std::mutex> lock(mutex_);
  return specs_;
}

std::string FakeCluster::traceparent() {
  std::lock_guard<std::mutex> lock(mutex_);
  return traceparent_;
}

bool FakeCluster::AwaitKeptTrace(const std::string& trace) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30),
                           [&] { return kept_traces_.count(trace) > 0; });
}

void FakeCluster::SetInstances(uint32_t prefill, uint32_t decode) {
  std::lock_guard<std::mutex> lock(mutex_);
  prefill_ = prefill;
  decode_ = decode;
}

void FakeCluster::SetListModels(absl::Status failure, int64_t instance_lease_us) {
  std::lock_guard<std::mutex> lock(mutex_);
  list_failure_ = std::move(failure);
  instance_lease_us_ = instance_lease_us;
}

int FakeCluster::list_models_calls() {
  std::lock_guard<std::mutex> lock(mutex_);
  return list_calls_;
}

int FakeCluster::attached() {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(attached_.size());
}

int FakeCluster::token_streams() {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(token_streams_);
}

bool FakeCluster::AwaitTokenStreams(int opened) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30),
                           [&] { return token_streams_ >= static_cast<uint64_t>(opened); });
}

std::string FakeCluster::token_traceparent() {
  std::lock_guard<std::mutex> lock(mutex_);
  return token_traceparent_;
}

bool FakeCluster::AwaitEnded(int ended, int detached) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30),
                           [&] { return ended_ >= ended && detached_ >= detached; });
}

grpc::ServerBidiReactor<v1::RouterMessages, v1::OrchestratorRouterMessages>*
FakeCluster::ConnectRouter(grpc::CallbackServerContext* context) {
  using Stream = ServerStream<v1::RouterMessages, v1::OrchestratorRouterMessages>;
  auto stream = Stream::Make(context, [](std::function<void()> hook) { hook(); });
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t session = scheduler::FirstNumberOf(1) + ++sessions_;
  routers_.emplace(session, Router{stream, MessageCounters(session)});
  lock.unlock();
  stream->Open({.message =
                    [this, session](const v1::RouterMessage& message) {
                      Script script;  // it may ask this cluster
                      if (message.has_submit()) script = script_(SpecOf(message.submit()));
                      std::lock_guard<std::mutex> lock(mutex_);
                      Take(session, message, script);
                    },
                .ended =
                    [this, session] {
                      std::lock_guard<std::mutex> lock(mutex_);
                      routers_.erase(session);
                    }});
  return stream.get();
}

void FakeCluster::Take(uint64_t router, const v1::RouterMessage& message, const Script& script) {
  const auto it = routers_.find(router);
  if (it == routers_.end()) return;
  if (!it->second.counters.Take(message, 0).ok()) std::abort();
  v1::OrchestratorRouterMessage answer;
  switch (message.message_case()) {
    case v1::RouterMessage::kHello: {
      scheduler::RouterWelcome welcome{.status = absl::OkStatus(),
                                       .generation = {1, {1}},
                                       .lease_us = instance_lease_us_,
                                       .unknown = {}};
      for (const v1::RouterRequest& one : message.hello().requests()) {
        if (scripts_.count(one.id().serial()) == 0) welcome.unknown.push_back(*FromProto(one.id()));
      }
      *answer.mutable_welcome() = ToProto(welcome);
      return Send(router, std::move(answer));
    }
    case v1::RouterMessage::kSubmit:
      return Plan(router, message.submit(), script);
    case v1::RouterMessage::kEnded:
      ended_ += scripts_[message.ended().id().serial()].plan.ok() ? 1 : 0;
      return changed_.notify_all();
    case v1::RouterMessage::kReport:
      for (const std::string& trace : message.report().keep_traces()) kept_traces_.insert(trace);
      changed_.notify_all();
      answer.mutable_report_taken();
      return Send(router, std::move(answer));
    case v1::RouterMessage::kGoodbye:
      answer.mutable_goodbye_taken();
      return Send(router, std::move(answer));
    default:
      std::abort();
  }
}

void FakeCluster::Send(uint64_t router, v1::OrchestratorRouterMessage message) {
  Router& to = routers_.at(router);
  to.counters.Stamp(&message, 0);
  to.stream->Write(std::move(message));
}

void FakeCluster::Plan(uint64_t router, const v1::SubmitRequest& request, const Script& script) {
  const v1::RequestSpec spec = SpecOf(request);
  specs_.push_back(spec);
  scripts_[spec.id().serial()] = script;
  traceparent_ = request.traceparent();
  v1::OrchestratorRouterMessage message;
  *message.mutable_update()->mutable_id() = spec.id();
  v1::PlanUpdate& update = *message.mutable_update()->mutable_update();
  update.set_epoch(spec.id().serial());
  // As the real one does: a plan may fail later for want of a decode instance.
  if (script.plan.ok() || absl::IsUnavailable(script.plan)) {
    update.mutable_planned()->set_prefill_instance(1);
    update.mutable_planned()->set_decided_us(500'000);
    Send(router, message);
  }
  if (script.plan.ok()) {
    update.mutable_placed()->set_decode_instance(2);
    update.mutable_placed()->set_decode_endpoint(endpoint());
    update.mutable_placed()->set_decode_incarnation(2);
  } else {
    ToProto(script.plan, update.mutable_failed());
  }
  Send(router, std::move(message));
}

grpc::ServerUnaryReactor* FakeCluster::ListModels(grpc::CallbackServerContext* context,
                                                  const v1::ListModelsRequest*,
                                                  v1::ListModelsResponse* response) {
  v1::ModelStatus* model = response->add_models();
  model->set_model(model_);
  absl::Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    model->set_prefill_instances(prefill_);
    model->set_decode_instances(decode_);
    response->set_instance_lease_us(static_cast<uint64_t>(instance_lease_us_));
    ++list_calls_;
    status = list_failure_;
  }
  auto* reactor = context->DefaultReactor();
  const bool broke = absl::IsUnavailable(status) && status.message().empty();
  reactor->Finish(broke ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "") : ToGrpc(status));
  return reactor;
}

grpc::ServerBidiReactor<v1::TokenStreamRequest, v1::TokenBatch>* FakeCluster::StreamTokens(
    grpc::CallbackServerContext* context) {
  std::lock_guard<std::mutex> lock(mutex_);
  const scheduler::TokenStreamId id{++token_streams_};
  changed_.notify_all();
  // Hooks run in place, on gRPC's threads.
  auto stream = TokenStream::Make(context, [this](const std::function<void()>& hook) { hook(); });
  token_calls_[id] = stream;
  stream->Open({.message =
                    [this, id](const v1::TokenStreamRequest& request) {
                      std::lock_guard<std::mutex> lock(mutex_);
                      OnTokenRequest(id, request);
                    },
                .ended =
                    [this, id] {
                      std::lock_guard<std::mutex> lock(mutex_);
                      CloseTokenStream(id);
                    },
                .writable =
                    [this] {
                      std::lock_guard<std::mutex> lock(mutex_);
                      SendTokens();
                    }});
  return stream.get();
}

void FakeCluster::BreakTokenStreams() {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!token_calls_.empty()) {
    const auto [id, call] = *token_calls_.begin();
    call->Close(ToGrpc(absl::UnavailableError("the worker is stopping")));
    CloseTokenStream(id);
  }
}

void FakeCluster::OnTokenRequest(scheduler::TokenStreamId stream,
                                 const v1::TokenStreamRequest& message) {
  if (token_calls_.count(stream) == 0) return;
  const auto request = FromProto(message);
  std::vector<scheduler::DecodeEvent> events;
  if (!request.ok() || !tokens_.Take(stream, *request, &events).ok()) std::abort();
  for (const auto& attach : request->attach) token_traceparent_ = attach.traceparent;
  for (const scheduler::DecodeEvent& event : events) Execute(event);
  SendTokens();
}

void FakeCluster::CloseTokenStream(scheduler::TokenStreamId stream) {
  token_calls_.erase(stream);
  for (const scheduler::DecodeEvent& event : tokens_.Close(stream, /*now=*/0)) Execute(event);
}

void FakeCluster::Execute(const scheduler::DecodeEvent& event) {
  if (const auto* attached = std::get_if<scheduler::AttachCalled>(&event)) {
    attached_.insert(attached->call);
    return Play(scripts_[attached->id.serial], *attached);
  }
  if (attached_.erase(std::get<scheduler::DetachCalled>(event).call) == 0) return;
  ++detached_;
  changed_.notify_all();
}

void FakeCluster::SendTokens() {
  for (const auto& [id, call] : token_calls_) {
    while (tokens_.HasNext(id) && call->Writable()) call->Write(ToProto(tokens_.Next(id)));
  }
}

void FakeCluster::Play(const Script& script, const scheduler::AttachCalled& attached) {
  v1::SampledTokens prompt_logprobs;
  for (const v1::SampledToken& logprob : script.prompt_logprobs) {
    *prompt_logprobs.add_tokens() = logprob;
  }
  const scheduler::PrefillTimes times{1'000'000, 250'000, 125'000};
  int64_t index = 0;
  for (const v1::SampledToken& token : script.tokens) {
    const bool plain = token.logprob() == 0 && token.top().empty();
    tokens_.Emit({.call = attached.call,
                  .id = attached.id,
                  .epoch = attached.epoch,
                  .index = index,
                  .token = token.token(),
                  .payload = plain ? std::string() : token.SerializeAsString(),
                  .prompt_logprobs = index == 0 ? prompt_logprobs.SerializeAsString() : "",
                  .times = times});
    ++index;
    if (!script.one_message) SendTokens();
  }
  if (script.hold) return;
  scheduler::EndStream end{.call = attached.call, .id = attached.id, .epoch = attached.epoch};
  end.reason = script.failure.ok() ? FromProto(script.reason) : scheduler::FinishReason::kError;
  end.status = script.failure;
  if (end.reason == scheduler::FinishReason::kStop) end.stop_token = script.stop_token;
  end.output_tokens = index + (end.stop_token >= 0 ? 1 : 0);
  if (index == 0) {
    end.prompt_logprobs = prompt_logprobs.SerializeAsString();
    end.times = times;
  }
  attached_.erase(attached.call);
  tokens_.End(std::move(end));
}

}  // namespace skein::services::testing
