#include <cuda_runtime_api.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/comm/device/cuda_memory.h"
#include "engine/comm/device/kernels/kernel_fabric.h"
#include "engine/comm/device/nccl/nccl_fabric.h"
#include "engine/comm/device/peers/cuda_peer_fabric.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/device/cuda_peer_opener.h"
#include "engine/host/memory_realm.h"

namespace skein::engine {
namespace {

constexpr size_t kProbeBytes = 4096;
// Group generations for which memory is reserved: one in use, one being made, one not yet safe to
// reuse.
constexpr size_t kGenerations = 3;

absl::StatusOr<std::string> UuidOf(int id) {
  cudaDeviceProp properties{};
  const absl::Status status =
      AsCommStatus(cudaGetDeviceProperties(&properties, id), "cudaGetDeviceProperties");
  if (!status.ok()) return status;
  return "GPU-" + absl::BytesToHexString({properties.uuid.bytes, sizeof properties.uuid.bytes});
}

// Those whose memory GPU `id` reads as a peer, of those that this process sees.
absl::StatusOr<std::vector<std::string>> ReachesOf(int id) {
  int count = 0;
  absl::Status status = AsCommStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  std::vector<std::string> reaches;
  for (int other = 0; status.ok() && other < count; ++other) {
    int can = 0;
    if (other == id) continue;
    status = AsCommStatus(cudaDeviceCanAccessPeer(&can, id, other), "cudaDeviceCanAccessPeer");
    if (!status.ok() || can == 0) continue;
    absl::StatusOr<std::string> uuid = UuidOf(other);
    if (!uuid.ok()) return uuid.status();
    reaches.push_back(*std::move(uuid));
  }
  if (!status.ok()) return status;
  return reaches;
}

// Whether others may open what is allocated here, as far as this process can tell.
absl::Status CheckShared(const std::string& name, Device* device) {
  const absl::StatusOr<std::shared_ptr<PeerOpener>> opener = MakeCudaPeerOpener(name);
  if (!opener.ok()) return opener.status();
  const absl::StatusOr<void*> probe = device->Alloc(kProbeBytes);
  if (!probe.ok()) return probe.status();
  const absl::Status shared = (*opener)->Export(*probe).status();
  device->Free(*probe, kProbeBytes);
  return shared;
}

// What a worker on this GPU has; why it has not what it wants.
class Parts {
 public:
  Parts(std::string name, int id, std::shared_ptr<LinkFabric> hosts)
      : name_(std::move(name)), id_(id), hosts_(std::move(hosts)) {
    ways.host = hosts_;
  }

  absl::Status AddIpc(Device* device) {
    const std::string realm = MemoryRealm();
    if (realm.empty()) return absl::UnavailableError("/proc does not tell who shares this host");
    const absl::Status shared = CheckShared(name_, device);
    if (!shared.ok()) return shared;
    absl::StatusOr<std::vector<std::string>> reaches = ReachesOf(id_);
    if (!reaches.ok()) return reaches.status();
    auto fabric = MakeCudaPeerFabric(hosts_, id_);
    if (!fabric.ok()) return fabric.status();
    self.realm = realm;
    self.reaches = *std::move(reaches);
    ways.ipc = *std::move(fabric);
    return absl::OkStatus();
  }

  absl::Status AddNccl() {
    const absl::StatusOr<int> version = NcclVersion();
    if (!version.ok()) return version.status();
    auto fabric = MakeNcclFabric(hosts_, id_);
    if (!fabric.ok()) return fabric.status();
    auto rings = MakeNcclRings(hosts_, id_);
    if (!rings.ok()) return rings.status();
    self.nccl_version = *version;
    ways.nccl = *std::move(fabric);
    ways.lanes = *std::move(rings);
    return absl::OkStatus();
  }

  CommMember self;
  CommWays ways;

 private:
  const std::string name_;
  const int id_;
  const std::shared_ptr<LinkFabric> hosts_;
};

absl::Status CheckWanted(std::optional<CommPath> wanted, const absl::Status& ipc,
                         const absl::Status& nccl) {
  const absl::Status& status = wanted == CommPath::kIpc    ? ipc
                               : wanted == CommPath::kNccl ? nccl
                                                           : absl::OkStatus();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("comm_path: '", std::string(NameOf(*wanted)),
                   "' is not possible here: ", std::string(status.message())));
}

// Groups' collectives as kernels, over `fabric` for what they do not serve.
absl::Status AddKernels(const std::string& name, std::shared_ptr<Device> device,
                        std::shared_ptr<CopyStream> copies, const WorkerFabricOptions& options,
                        PathFabric* fabric) {
  const auto* const gpu = dynamic_cast<const CudaDevice*>(device.get());
  if (gpu == nullptr) return absl::InternalError("collectives as kernels need a CUDA device");
  auto opener = MakeCudaPeerOpener(name);
  if (!opener.ok()) return opener.status();
  const auto borrowed = [](Fabric* one) { return std::shared_ptr<Fabric>(one, [](Fabric*) {}); };
  KernelFabricParts parts;
  parts.hosts = borrowed(fabric->Hosts());
  parts.below = borrowed(fabric);
  parts.stream = gpu->Stream();
  parts.device = std::move(device);
  parts.opener = *std::move(opener);
  parts.serves = PathFabric::TakesIpc;
  parts.copies = std::move(copies);
  parts.warn = options.warn;
  parts.queued = [fabric](int ranks, uint64_t bytes) { fabric->KernelMoved(ranks, bytes); };
  parts.reserved_bytes = kGenerations * KernelBytesOfNode(parts.shape, options.step_ranks_max);
  auto kernels = MakeKernelFabric(std::move(parts));
  if (kernels.ok()) fabric->SetKernels(*std::move(kernels));
  return kernels.status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PathFabric>> MakeGpuFabric(const std::string& name,
                                                          std::shared_ptr<Device> device,
                                                          const WorkerFabricOptions& options) {
  const absl::StatusOr<int> id = ParseCudaDevice(name);
  if (!id.ok()) return id.status();
  const absl::StatusOr<std::string> uuid = UuidOf(*id);
  if (!uuid.ok()) return uuid.status();
  auto copies = MakeCudaCopyStream(name);
  if (!copies.ok()) return copies.status();
  auto hosts = MakeUcxLinkFabric(options.hosts, options.plane);
  if (!hosts.ok()) return hosts.status();
  Parts parts(name, *id, *std::move(hosts));
  parts.self.gpu = *uuid;
  parts.self.wants = options.path;
  const absl::Status ipc = parts.AddIpc(device.get()), nccl = parts.AddNccl();
  const absl::Status wanted = CheckWanted(options.path, ipc, nccl);
  if (!wanted.ok()) return wanted;
  auto fabric = PathFabric::Make(std::move(parts.self), std::move(parts.ways), {device, *copies},
                                 {.warn = options.warn});
  if (!fabric.ok() || !ipc.ok() || options.step_ranks_max < 2) return fabric;
  const absl::Status kernels =
      AddKernels(name, std::move(device), *std::move(copies), options, fabric->get());
  if (!kernels.ok() && options.warn) {
    options.warn(absl::StrCat("steps of groups do without kernels for their collectives: ",
                              std::string(kernels.message())));
  }
  return fabric;
}

}  // namespace skein::engine
