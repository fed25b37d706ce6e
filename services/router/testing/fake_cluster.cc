#include "services/router/testing/fake_cluster.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "services/base/status_map.h"

namespace skein::services::testing {

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

FakeCluster::FakeCluster(std::string model, ScriptFn script)
    : model_(std::move(model)), script_(std::move(script)) {
  auto rpc = ServeRpc("127.0.0.1:0", {static_cast<v1::Orchestrator::CallbackService*>(this),
                                      static_cast<v1::DecodeWorker::CallbackService*>(this)});
  if (!rpc.ok()) std::abort();
  rpc_ = *std::move(rpc);
}

FakeCluster::~FakeCluster() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& stream : plans_) stream->Close(grpc::Status::OK);
    for (auto& stream : held_) stream->Close(grpc::Status::OK);
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

int FakeCluster::open_generates() {
  std::lock_guard<std::mutex> lock(mutex_);
  return open_generates_;
}

bool FakeCluster::AwaitCancelled(int submits, int generates) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30), [&] {
    return cancelled_submits_ >= submits && cancelled_generates_ >= generates;
  });
}

grpc::ServerWriteReactor<v1::PlanUpdate>* FakeCluster::Submit(grpc::CallbackServerContext* context,
                                                              const v1::SubmitRequest* request) {
  auto stream = StreamWriter<v1::PlanUpdate>::Make([this] {
    std::lock_guard<std::mutex> lock(mutex_);
    ++cancelled_submits_;
    changed_.notify_all();
  });
  const Script script = script_(request->spec());
  v1::PlanUpdate update;
  update.set_epoch(request->spec().id().serial());
  // As the real one does: a plan may fail later for want of a decode instance.
  if (script.plan.ok() || absl::IsUnavailable(script.plan)) {
    update.mutable_planned()->set_prefill_instance(1);
    update.mutable_planned()->set_decided_us(500'000);
    stream->Write(update);
  }
  if (script.plan.ok()) {
    update.mutable_placed()->set_decode_instance(2);
    update.mutable_placed()->set_decode_endpoint(endpoint());
  } else {
    ToProto(script.plan, update.mutable_failed());
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto& metadata = context->client_metadata();
    const auto trace = metadata.find("traceparent");
    if (trace != metadata.end()) traceparent_.assign(trace->second.data(), trace->second.size());
    specs_.push_back(request->spec());
    scripts_[request->spec().id().serial()] = script;
    plans_.push_back(stream);
  }
  stream->Write(update);
  if (!script.plan.ok()) stream->Close(grpc::Status::OK);
  return stream.get();
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

grpc::ServerWriteReactor<v1::GenerateUpdate>* FakeCluster::Generate(
    grpc::CallbackServerContext*, const v1::GenerateRequest* request) {
  auto stream = StreamWriter<v1::GenerateUpdate>::Make([this] {
    std::lock_guard<std::mutex> lock(mutex_);
    ++cancelled_generates_;
    --open_generates_;
    changed_.notify_all();
  });
  Script script;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    script = scripts_[request->id().serial()];
    ++open_generates_;
    if (script.hold) held_.push_back(stream);
  }
  Play(script, stream.get());
  return stream.get();
}

void FakeCluster::Play(const Script& script, StreamWriter<v1::GenerateUpdate>* stream) {
  v1::GenerateUpdate update;
  for (const v1::SampledToken& logprob : script.prompt_logprobs) {
    *update.add_prompt_logprobs() = logprob;
  }
  update.mutable_times()->set_queue_us(1'000'000);
  update.mutable_times()->set_prefill_us(250'000);
  update.mutable_times()->set_handoff_us(125'000);
  uint64_t index = 0;
  for (const v1::SampledToken& token : script.tokens) {
    v1::GenerateUpdate::Token* out = update.add_tokens();
    out->set_index(index++);
    *out->mutable_sampled() = token;
    if (!script.one_message) stream->Write(std::exchange(update, {}));
  }
  if (script.hold) return stream->Write(std::move(update));
  v1::GenerateUpdate::Finished* finished = update.mutable_finished();
  finished->set_reason(script.failure.ok() ? script.reason : v1::FINISH_REASON_ERROR);
  if (!script.failure.ok()) ToProto(script.failure, finished->mutable_failure());
  const bool stop = finished->reason() == v1::FINISH_REASON_STOP;
  if (stop) finished->set_stop_token(script.stop_token);
  finished->set_output_tokens(index + (stop ? 1 : 0));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --open_generates_;
  }
  stream->Write(std::move(update));
  stream->Close(grpc::Status::OK);
}

}  // namespace skein::services::testing
