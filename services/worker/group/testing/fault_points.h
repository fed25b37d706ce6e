// Named points at which a worker's process kills or stops itself, once: for tests of what the
// others do then. They lie between the worker and what it is made of, so no product code knows
// them: on the stream to its orchestrator (FaultRelay) and around its engine (PointedEngine).
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "engine/stepping/step_engine.h"
#include "grpcpp/grpcpp.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/worker/group/testing/fault_point.h"

namespace skein::services::testing {

// Any thread.
class FaultPoints {
 public:
  // `signal`: SIGKILL or SIGSTOP, which this process sends itself when it next comes to the point.
  void Arm(FaultPoint point, int signal) {
    signal_ = signal;
    armed_ = point;
  }
  void At(FaultPoint point) {
    FaultPoint expected = point;
    if (point == FaultPoint::kNone) return;
    if (armed_.compare_exchange_strong(expected, FaultPoint::kNone)) kill(getpid(), signal_);
  }

 private:
  std::atomic<FaultPoint> armed_{FaultPoint::kNone};
  std::atomic<int> signal_{SIGKILL};
};

// An orchestrator to the worker of this process: passes all on to the real one, and back, past the
// points.
class FaultRelay final : public v1::Orchestrator::Service {
 public:
  // `points` outlives it.
  FaultRelay(const std::string& orchestrator, FaultPoints* points)
      : stub_(v1::Orchestrator::NewStub(
            grpc::CreateChannel(orchestrator, grpc::InsecureChannelCredentials()))),
        points_(points) {}

  grpc::Status ConnectWorker(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::OrchestratorMessages, v1::WorkerMessages>* worker) override {
    grpc::ClientContext context;
    const auto orchestrator = stub_->ConnectWorker(&context);
    std::thread orders([&] {
      for (v1::OrchestratorMessages batch; orchestrator->Read(&batch);) {
        for (const v1::OrchestratorMessage& one : batch.messages()) points_->At(PointOf(one));
        worker->Write(batch);
      }
    });
    for (v1::WorkerMessages batch; worker->Read(&batch);) {
      for (const v1::WorkerMessage& one : batch.messages()) points_->At(PointOf(one));
      if (!orchestrator->Write(batch)) break;
    }
    context.TryCancel();
    orders.join();
    return orchestrator->Finish();
  }

 private:
  static FaultPoint PointOf(const v1::OrchestratorMessage& order) {
    if (order.has_prepare_formation()) return FaultPoint::kPrepareOrdered;
    if (order.has_commit_formation()) return FaultPoint::kCommitOrdered;
    if (order.has_end_formation()) return FaultPoint::kReleaseOrdered;
    return FaultPoint::kNone;
  }
  static FaultPoint PointOf(const v1::WorkerMessage& message) {
    if (!message.has_formation()) return FaultPoint::kNone;
    const auto phase = message.formation().phase();
    if (phase == v1::FormationTold::PREPARED) return FaultPoint::kPrepared;
    return phase == v1::FormationTold::BOUND ? FaultPoint::kBound : FaultPoint::kEnded;
  }

  const std::unique_ptr<v1::Orchestrator::Stub> stub_;
  FaultPoints* const points_;
};

// The steps of a group pass the points.
class PointedEngine final : public engine::StepEngine {
 public:
  // `points` outlives it.
  PointedEngine(std::unique_ptr<engine::StepEngine> inner, FaultPoints* points)
      : inner_(std::move(inner)), points_(points) {}

  const engine::EngineSpec& Spec() const override { return inner_->Spec(); }
  std::span<const engine::KvRegion> KvRegions() const override { return inner_->KvRegions(); }
  absl::StatusOr<engine::SequenceHandle> Admit(const engine::SequenceInfo& info) override {
    return inner_->Admit(info);
  }
  void Launch(engine::StepPlan plan) override {
    if (plan.group.has_value()) {
      plan.group->enter = [this, enter = std::move(plan.group->enter)] {
        points_->At(FaultPoint::kStepLaunched);
        return enter();
      };
      plan.layer_queued = [this](int) { points_->At(FaultPoint::kInStep); };
      plan.completed = [this, completed = std::move(plan.completed)](bool idle) {
        points_->At(FaultPoint::kStepEnded);
        completed(idle);
      };
    }
    inner_->Launch(std::move(plan));
  }
  // A decode-worker asks for no layers: only the points do.
  std::optional<engine::CompletedStep> Poll() override {
    std::optional<engine::CompletedStep> completed = inner_->Poll();
    if (completed.has_value()) completed->layers = 0;
    return completed;
  }
  std::optional<engine::StepLayers> Layers() override { return std::nullopt; }
  void Release(engine::SequenceHandle sequence) override { inner_->Release(sequence); }

 private:
  const std::unique_ptr<engine::StepEngine> inner_;
  FaultPoints* const points_;
};

}  // namespace skein::services::testing
