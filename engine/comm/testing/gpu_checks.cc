#include "engine/comm/testing/gpu_checks.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "engine/comm/testing/ranks.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

std::vector<float> Constant(size_t count, float value) { return std::vector<float>(count, value); }

absl::Status CheckCount(Communicator* comm, int device, int64_t count) {
  const int n = comm->Size(), rank = comm->Rank();
  const auto size = static_cast<size_t>(count), all_size = size * static_cast<size_t>(n);
  const GpuFloats data(device, Constant(size, 1.0f)), all(device, Constant(all_size, 0.0f));
  const GpuFloats part(device, Constant(size, 0.0f));
  auto status = comm->AllReduce(data.data(), count, DType::kF32, Later());
  if (status.ok()) status = comm->AllGather(data.bytes(), all.bytes(), Later());
  if (status.ok()) {
    status = comm->ReduceScatter(all.data(), part.data(), count, DType::kF32, Later());
  }
  if (status.ok()) {
    status =
        comm->SendRecv(part.bytes(), (rank + 1) % n, data.bytes(), (rank + n - 1) % n, Later());
  }
  if (status.ok()) status = comm->Broadcast(data.bytes(), 0, Later());
  if (!status.ok()) return status;
  if (data.Read() != Constant(size, static_cast<float>(n * n))) {
    return absl::DataLossError("a wrong sum");
  }
  // Every rank tells every other its own number.
  const GpuFloats mine(device, Constant(all_size, static_cast<float>(rank)));
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (int r = 0; r < n; ++r) {
    const size_t begin = static_cast<size_t>(r) * size * 4;
    send.push_back(mine.bytes().subspan(begin, size * 4));
    receive.push_back(all.bytes().subspan(begin, size * 4));
  }
  status = comm->AllToAll(send, receive, Later());
  if (!status.ok()) return status;
  const std::vector<float> told = all.Read();
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i] != static_cast<float>(i / size)) return absl::DataLossError("a wrong all-to-all");
  }
  return status;
}

}  // namespace

GpuFloats::GpuFloats(int device, const std::vector<float>& values) : count_(values.size()) {
  SKEIN_CHECK(cudaSetDevice(device) == cudaSuccess);
  SKEIN_CHECK(cudaMalloc(&data_, std::max<size_t>(4, count_ * 4)) == cudaSuccess);
  SKEIN_CHECK(cudaMemcpy(data_, values.data(), count_ * 4, cudaMemcpyHostToDevice) == cudaSuccess);
}

std::vector<float> GpuFloats::Read() const {
  std::vector<float> values(count_);
  SKEIN_CHECK(cudaMemcpy(values.data(), data_, count_ * 4, cudaMemcpyDeviceToHost) == cudaSuccess);
  return values;
}

absl::Status CheckOnGpu(Communicator* comm, int device) {
  for (const int64_t count : {0, 1, 1001, 3000001}) {
    const absl::Status status = CheckCount(comm, device, count);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
