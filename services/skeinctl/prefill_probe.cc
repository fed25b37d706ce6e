#include "services/skeinctl/prefill_probe.h"

#include <chrono>
#include <random>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"

namespace skein::services {
namespace {

// Prompts are drawn from the first token ids: every vocabulary has them.
constexpr int32_t kFirstToken = 3, kLastToken = 255;

void SetDeadline(grpc::ClientContext* context, int seconds) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
}

absl::Status Explained(const grpc::Status& status, absl::string_view who) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(FromGrpc(status, "peer").code(),
                      absl::StrCat(who, ": ", status.error_message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefillProbe>> PrefillProbe::Connect(const std::string& orchestrator,
                                                                    const std::string& model) {
  std::unique_ptr<PrefillProbe> probe(new PrefillProbe);
  std::random_device random;
  probe->incarnation_ = (static_cast<uint64_t>(random()) << 32) | random();
  probe->orchestrator_ = v1::Orchestrator::NewStub(probe->channels_.Get(orchestrator));
  if (const absl::Status s = probe->FindModel(model); !s.ok()) return s;
  if (const absl::Status s = probe->FindWorkers(); !s.ok()) return s;
  // Chunks that ran before are not samples of this run.
  if (const auto before = probe->Collect(); !before.ok()) return before.status();
  return probe;
}

absl::Status PrefillProbe::FindModel(const std::string& wanted) {
  grpc::ClientContext context;
  SetDeadline(&context, 5);
  v1::ListModelsResponse models;
  const absl::Status asked =
      Explained(orchestrator_->ListModels(&context, {}, &models), "the orchestrator");
  if (!asked.ok()) return asked;
  if (wanted.empty() && models.models_size() > 1) {
    return absl::InvalidArgumentError("--model: the cluster serves several; name one");
  }
  for (const v1::ModelStatus& model : models.models()) {
    if (!wanted.empty() && model.model() != wanted) continue;
    model_ = model.model();
    prompt_tokens_max_ = static_cast<int64_t>(model.max_positions()) - 1;
    return absl::OkStatus();
  }
  return absl::NotFoundError(wanted.empty()
                                 ? "the cluster serves no model"
                                 : absl::StrCat("--model: '", wanted, "' is not served"));
}

absl::Status PrefillProbe::FindWorkers() {
  grpc::ClientContext context;
  SetDeadline(&context, 5);
  v1::StatusResponse status;
  const absl::Status asked =
      Explained(orchestrator_->Status(&context, {}, &status), "the orchestrator");
  if (!asked.ok()) return asked;
  for (const v1::InstanceStatus& instance : status.instances()) {
    const v1::RegisterRequest& registration = instance.registration();
    if (registration.role() != v1::ROLE_PREFILL || registration.model() != model_) continue;
    device_ = registration.device();
    workers_.push_back({v1::PrefillWorker::NewStub(channels_.Get(registration.endpoint())),
                        registration.endpoint()});
  }
  return absl::OkStatus();
}

absl::Status PrefillProbe::Run(int64_t prompt_tokens) {
  v1::SubmitRequest request;
  v1::RequestSpec* spec = request.mutable_spec();
  spec->mutable_id()->set_router(incarnation_);
  spec->mutable_id()->set_serial(++serial_);
  spec->set_model(model_);
  std::minstd_rand draw(static_cast<uint32_t>(serial_));
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < prompt_tokens; ++i) {
    prompt.push_back(kFirstToken + static_cast<int32_t>(draw() % (kLastToken - kFirstToken)));
  }
  spec->set_prompt(PackTokens(prompt));
  spec->set_max_tokens(1);
  v1::SamplingParams sampling;
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_top_logprobs(-1);
  spec->set_sampling(sampling.SerializeAsString());
  request.set_plan_alone(true);
  grpc::ClientContext context;
  SetDeadline(&context, 600);
  const auto plans = orchestrator_->Submit(&context, request);
  v1::PlanUpdate update;
  while (plans->Read(&update)) {
    if (update.has_failed()) {
      return absl::UnavailableError(absl::StrCat("a prompt of ", prompt_tokens,
                                                 " tokens failed: ", update.failed().message()));
    }
    if (!update.has_placed()) continue;
    const absl::Status generated =
        AwaitToken(spec->id(), update.epoch(), update.placed().decode_endpoint());
    context.TryCancel();
    plans->Finish();
    return generated;
  }
  const absl::Status ended = Explained(plans->Finish(), "the orchestrator");
  return ended.ok() ? absl::UnavailableError("the plan ended before a decode instance") : ended;
}

absl::Status PrefillProbe::AwaitToken(const v1::RequestId& id, uint64_t epoch,
                                      const std::string& endpoint) {
  const auto stub = v1::DecodeWorker::NewStub(channels_.Get(endpoint));
  grpc::ClientContext context;
  SetDeadline(&context, 600);
  const auto stream = stub->StreamTokens(&context);
  v1::TokenStreamRequest request;
  v1::TokenStreamRequest::Attach* attach = request.add_attach();
  *attach->mutable_id() = id;
  attach->set_epoch(epoch);
  attach->set_credit(1);  // it samples no more
  v1::TokenBatch batch;
  bool more = stream->Write(request);
  while (more && (more = stream->Read(&batch))) {
    for (const v1::TokenBatch::Sequence& sequence : batch.sequences()) {
      if (!sequence.has_finished()) continue;
      context.TryCancel();
      stream->Finish();
      const bool failed = sequence.finished().has_failure();
      return failed ? absl::UnavailableError(sequence.finished().failure().message())
                    : absl::OkStatus();
    }
  }
  const absl::Status ended = Explained(stream->Finish(), endpoint);
  return ended.ok() ? absl::UnavailableError("the token stream ended early") : ended;
}

absl::StatusOr<std::vector<scheduler::LatencySample>> PrefillProbe::Collect() {
  std::vector<scheduler::LatencySample> samples;
  for (Worker& worker : workers_) {
    grpc::ClientContext context;
    SetDeadline(&context, 5);
    v1::StepTimesRequest request;
    request.set_after(worker.collected);
    v1::StepTimesResponse response;
    const absl::Status asked =
        Explained(worker.stub->StepTimes(&context, request, &response), worker.endpoint);
    if (!asked.ok()) return asked;
    for (const v1::StepTimesResponse::StepTime& time : response.times()) {
      worker.collected = time.serial();
      samples.push_back({1, static_cast<int64_t>(time.history_tokens()),
                         static_cast<int64_t>(time.chunk_tokens()), time.seconds()});
    }
  }
  return samples;
}

}  // namespace skein::services
