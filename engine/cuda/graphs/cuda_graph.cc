#include "engine/cuda/graphs/cuda_graph.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "engine/cuda/device/cuda_check.h"

namespace skein::engine {
namespace {

class CudaGraph final : public RecordedGraph {
 public:
  CudaGraph(std::shared_ptr<CudaDevice> device, cudaGraphExec_t graph)
      : device_(std::move(device)), graph_(graph) {}
  ~CudaGraph() override {
    cudaSetDevice(device_->Info().id);
    cudaStreamSynchronize(device_->Stream());  // it may still run
    cudaGraphExecDestroy(graph_);
  }

  absl::Status Launch() override {
    const absl::Status set = FromCuda(cudaSetDevice(device_->Info().id), "cudaSetDevice");
    if (!set.ok()) return set;
    return FromCuda(cudaGraphLaunch(graph_, device_->Stream()), "cudaGraphLaunch");
  }

 private:
  const std::shared_ptr<CudaDevice> device_;
  const cudaGraphExec_t graph_;
};

class CudaGraphRecorder final : public GraphRecorder {
 public:
  CudaGraphRecorder(std::shared_ptr<CudaDevice> device, cudaStream_t stream)
      : device_(std::move(device)), stream_(stream) {}
  ~CudaGraphRecorder() override {
    cudaSetDevice(device_->Info().id);
    cudaStreamDestroy(stream_);
  }

  absl::StatusOr<CudaStream> Begin() override {
    absl::Status status = FromCuda(cudaSetDevice(device_->Info().id), "cudaSetDevice");
    if (status.ok()) {
      // Other threads allocate as they please.
      status = FromCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                        "cudaStreamBeginCapture");
    }
    if (!status.ok()) return status;
    return stream_;
  }

  absl::StatusOr<std::unique_ptr<RecordedGraph>> End() override {
    cudaGraph_t captured = nullptr;
    absl::Status status =
        FromCuda(cudaStreamEndCapture(stream_, &captured), "cudaStreamEndCapture");
    if (!status.ok()) return status;
    cudaGraphExec_t graph = nullptr;
    status = FromCuda(cudaGraphInstantiate(&graph, captured, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(captured);
    if (!status.ok()) return status;
    return std::make_unique<CudaGraph>(device_, graph);
  }

 private:
  const std::shared_ptr<CudaDevice> device_;
  const cudaStream_t stream_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GraphRecorder>> MakeCudaGraphRecorder(
    std::shared_ptr<CudaDevice> device) {
  absl::Status status = FromCuda(cudaSetDevice(device->Info().id), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  if (status.ok()) {
    status =
        FromCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  if (!status.ok()) return status;
  return std::make_unique<CudaGraphRecorder>(std::move(device), stream);
}

}  // namespace skein::engine
