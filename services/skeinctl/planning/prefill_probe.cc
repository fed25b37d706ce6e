#include "services/skeinctl/planning/prefill_probe.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

// Waits for the end of one request.
class EndListener final : public RequestListener {
 public:
  void OnAccepted(scheduler::RequestId) override {}
  void OnToken(const scheduler::DeliverToken&) override {}
  void OnEnd(const scheduler::End& end) override { ended_.set_value(end.status); }
  void OnReject(const scheduler::Reject& reject) override { ended_.set_value(reject.status); }
  void OnStop() override {}
  absl::Status Await() { return ended_.get_future().get(); }

 private:
  std::promise<absl::Status> ended_;
};

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
  probe->orchestrator_ =
      v1::Orchestrator::NewStub(probe->channels_.Get(orchestrator, {tls::Role::kOrchestrator}));
  if (const absl::Status s = probe->FindModel(model); !s.ok()) return s;
  if (const absl::Status s = probe->FindWorkers(); !s.ok()) return s;
  // Earlier chunks are not samples of this run.
  if (const auto before = probe->Collect(); !before.ok()) return before.status();
  probe->router_ = std::make_unique<ProbeRouter>(orchestrator);
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
    return absl::InvalidArgumentError("--model: the cluster serves several models; name one");
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
  std::map<std::string, int64_t> of_node;
  for (const v1::InstanceStatus& instance : status.instances()) {
    const v1::RegisterRequest& registration = instance.registration();
    if (registration.role() != v1::ROLE_PREFILL || registration.model() != model_) continue;
    device_ = registration.device();
    workers_.push_back({v1::PrefillWorker::NewStub(
                            channels_.Get(registration.endpoint(), {tls::Role::kPrefillWorker})),
                        registration.endpoint()});
    if (registration.comm_address().empty() || registration.node().empty()) continue;
    instances_of_node_ = std::max(instances_of_node_, ++of_node[registration.node()]);
  }
  return absl::OkStatus();
}

absl::Status PrefillProbe::Run(int64_t prompt_tokens, scheduler::PrefillShape shape) {
  auto listener = std::make_shared<EndListener>();
  router_->Send(model_, prompt_tokens, /*max_tokens=*/1, shape, listener);
  absl::Status ended = listener->Await();
  if (ended.ok()) return ended;
  return absl::UnavailableError(
      absl::StrCat("a prompt of ", prompt_tokens, " tokens failed: ", ended.message()));
}

absl::StatusOr<std::vector<ChunkTime>> PrefillProbe::Collect() {
  std::vector<ChunkTime> told;
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
      const scheduler::PrefillShape shape{.instances = std::max<uint32_t>(time.instances(), 1),
                                          .tp = std::max<uint32_t>(time.tp(), 1)};
      told.push_back({shape, static_cast<int64_t>(time.history_tokens()),
                      static_cast<int64_t>(time.chunk_tokens()), time.seconds()});
    }
  }
  return MergeMembers(told);
}

}  // namespace skein::services
