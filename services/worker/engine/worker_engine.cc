#include "services/worker/engine/worker_engine.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_peer_opener.h"
#include "engine/cuda/engine/cuda_engine.h"
#include "engine/device/cpu_device.h"
#include "engine/device/device.h"
#include "engine/device/memory_budget.h"
#include "engine/model/group/group_contexts.h"
#include "engine/model/group/group_engine.h"
#include "engine/model/model_engine.h"
#include "engine/model/sharing/weight_sharing.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/transport/registered_device.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "engine/ucx/ucx_plane.h"
#include "scheduler/vocabulary/check.h"
#include "services/log/log.h"
#include "services/worker/engine/data_plane.h"
#include "services/worker/engine/emulated_device.h"

namespace skein::services {
namespace {

absl::StatusOr<std::optional<engine::DType>> KvDType(const std::string& name) {
  if (name == "auto") return std::nullopt;
  for (engine::DType dtype : {engine::DType::kF32, engine::DType::kBF16, engine::DType::kF16}) {
    if (engine::NameOf(dtype) == name) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-dtype: '", name, "' is not auto, f32, bf16 or f16"));
}

absl::StatusOr<engine::CpuIsa> IsaOf(const std::string& name) {
  if (const auto isa = engine::IsaNamed(name); isa.has_value()) return *isa;
  return absl::InvalidArgumentError(
      absl::StrCat("--isa: '", name, "' is not auto, avx512bf16, avx512, avx2 or portable"));
}

int64_t BytesOf(double gib) { return static_cast<int64_t>(gib * (1 << 30)); }

// Of --device=cpu and cuda:N.
absl::StatusOr<engine::ModelEngineOptions> ModelOptionsOf(const WorkerOptions& options,
                                                          scheduler::Role role) {
  if (options.model.empty()) return absl::InvalidArgumentError("--model is required");
  if (!options.profile.empty()) {
    return absl::InvalidArgumentError("--profile: is for --device emulated only");
  }
  engine::ModelEngineOptions engine_options;
  engine_options.device_name = options.device;
  engine_options.kv_fills_device = options.device_memory_gib > 0;
  if (!engine_options.kv_fills_device) engine_options.kv_bytes = BytesOf(options.kv_gib);
  engine_options.block_tokens = static_cast<int>(options.block_tokens);
  engine_options.max_batch_tokens = static_cast<int>(options.BatchTokens());
  engine_options.max_positions = static_cast<int>(options.max_positions);
  if (role != scheduler::Role::kPrefill) engine_options.ring_tp_max = 1;
  const auto kv_dtype = KvDType(options.kv_dtype);
  if (!kv_dtype.ok()) return kv_dtype.status();
  engine_options.kv_dtype = *kv_dtype;
  engine_options.warn = [](const std::string& what) { LogWarning(what); };
  return engine_options;
}

using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// Says every tenth of the weights; all to `progress`.
Progress LogProgress(const Progress& progress) {
  return [progress, tenth = int64_t{0}](int64_t done_bytes, int64_t total_bytes) mutable {
    if (progress) progress(done_bytes, total_bytes);
    if (done_bytes * 10 < (tenth + 1) * total_bytes) return;
    tenth = done_bytes * 10 / total_bytes;
    LogInfo("loading weights", {{"done_bytes", done_bytes}, {"total_bytes", total_bytes}});
  };
}

bool IsReproducible(const WorkerOptions& options, engine::CpuIsa isa) {
  if (options.reproducible != "auto") return options.reproducible == "on";
  return engine::ReproducibleCostsLittle(isa);
}

// Of the largest group that a worker's engine is to run steps in. Models of prefill-workers are run
// by ModelEngine, which refuses steps of a group.
int GroupRanksWanted(scheduler::Role role) {
  return role == scheduler::Role::kDecode ? engine::kGroupRanksMax : 1;
}

// A worker's engine, the largest group that it can run steps in (1: none), and whether it can share
// its weights (null: it cannot).
struct MadeEngine {
  std::unique_ptr<engine::StepEngine> engine;
  int group_ranks_max = 1;
  std::shared_ptr<engine::WeightSharing> sharing = nullptr;
};

// Why a worker's engine cannot share its weights with others.
absl::Status CannotShare(const WorkerOptions& options) {
  if (options.device == "cpu") {
    return absl::FailedPreconditionError(
        "engine: without --device-memory-gib the weights of a worker on --device cpu are those of "
        "the mapped file, which all processes of the node share already");
  }
  return absl::UnimplementedError(absl::StrCat("engine: the one on device '", options.device,
                                               "' cannot share its weights with others"));
}

// Of an engine whose weights are within `budget`, in memory of its own on the host. `kv_device`:
// SharingOptions'.
std::shared_ptr<engine::WeightSharing> MakeSharing(const engine::CpuOpsOptions& ops,
                                                   std::shared_ptr<engine::MemoryBudget> budget,
                                                   engine::Device* kv_device) {
  engine::SharingOptions sharing;
  sharing.budget = std::move(budget);
  sharing.kv_device = kv_device;
  sharing.ranks_max = engine::kGroupRanksMax;
  sharing.make_serving_ops = [ops] {
    auto made = engine::MakeCpuOps(ops);
    SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());  // as the engine's own
    return *std::move(made);
  };
  return std::make_shared<engine::WeightSharing>(std::move(sharing));
}

absl::StatusOr<MadeEngine> MakeModel(const WorkerOptions& options, int group_ranks,
                                     std::unique_ptr<engine::Ops> ops,
                                     std::unique_ptr<engine::Device> device,
                                     const engine::ModelEngineOptions& engine_options) {
  if (group_ranks < 2) {
    auto made =
        engine::MakeModelEngine(options.model, std::move(ops), std::move(device), engine_options);
    if (!made.ok()) return made.status();
    return MadeEngine{*std::move(made)};
  }
  auto made = engine::GroupEngine::Make(options.model, std::move(ops), std::move(device),
                                        engine_options, group_ranks);
  if (!made.ok()) return made.status();
  const int ranks = (*made)->GroupRanksMax();
  return MadeEngine{*std::move(made), ranks};
}

// `pages_move`: memory that `device` has given may be given back to the system page by page.
absl::StatusOr<MadeEngine> MakeCpuEngine(const WorkerOptions& options, scheduler::Role role,
                                         std::unique_ptr<engine::Device> device, bool pages_move,
                                         const Progress& progress) {
  auto engine_options = ModelOptionsOf(options, role);
  if (!engine_options.ok()) return engine_options.status();
  const auto isa = IsaOf(options.isa);
  if (!isa.ok()) return isa.status();
  const engine::CpuOpsOptions ops_options = {.threads = static_cast<int>(options.threads),
                                             .isa = *isa,
                                             .reproducible = IsReproducible(options, *isa)};
  if (options.device_memory_gib > 0) {
    // Only KV is for other processes to reach.
    const auto budget = std::make_shared<engine::MemoryBudget>(
        static_cast<size_t>(BytesOf(options.device_memory_gib)));
    engine::Device* const kv_device = pages_move ? device.get() : nullptr;
    device = engine::MakeBudgetedDevice(std::move(device), budget);
    engine_options->weights_device = engine::MakeBudgetedDevice(engine::MakeCpuDevice(), budget);
    engine_options->progress = LogProgress(progress);
    if (role == scheduler::Role::kDecode) {
      engine_options->sharing = MakeSharing(ops_options, budget, kv_device);
    }
  }
  auto ops = engine::MakeCpuOps(ops_options);
  if (!ops.ok()) return ops.status();
  auto made = MakeModel(options, GroupRanksWanted(role), *std::move(ops), std::move(device),
                        *engine_options);
  if (made.ok()) made->sharing = engine_options->sharing;
  return made;
}

// An error of the engine under the name of the flag that the user gave, in place of the engine's
// own name for it.
absl::Status NameTheFlag(const WorkerOptions& options, const absl::Status& status) {
  const std::string message(status.message());
  const auto about = [&status](const auto&... text) {
    return absl::Status(status.code(), absl::StrCat(text...));
  };
  if (status.ok() || absl::StartsWith(message, "--")) return status;
  if (absl::StartsWith(message, "device: ")) return about("--", message);
  if (absl::StartsWith(message, "comm_path: ")) return about("--comm-path", message.substr(9));
  if (absl::StartsWith(message, "kv_bytes = ")) {
    return about("--kv-gib: ", options.kv_gib, " GiB are less than one KV block",
                 message.substr(message.find(':')));
  }
  return status;
}

// The same of what loads the model: all else is about the model's files.
absl::Status AboutModel(const WorkerOptions& options, const absl::Status& failed) {
  const absl::Status status = NameTheFlag(options, failed);
  const std::string message(status.message());
  const auto about = [&status](const auto&... text) {
    return absl::Status(status.code(), absl::StrCat(text...));
  };
  if (absl::StartsWith(message, "--") || options.model.empty()) return status;
  if (absl::IsResourceExhausted(status) && options.device_memory_gib > 0) {
    return about("--device-memory-gib: ", options.device_memory_gib, " GiB: ", message);
  }
  if (absl::IsResourceExhausted(status)) {
    return about("--kv-gib: ", options.kv_gib,
                 " GiB and what the model needs beside them do not fit in memory: ", message);
  }
  return about("--model: '", options.model, "': ", message);
}

// `gpu` receives the device, for code that must wait for its work.
absl::StatusOr<MadeEngine> MakeGpuEngine(const WorkerOptions& options, scheduler::Role role,
                                         const Progress& progress,
                                         std::shared_ptr<engine::Device>* gpu) {
  auto engine_options = ModelOptionsOf(options, role);
  if (!engine_options.ok()) return engine_options.status();
  engine_options->progress = LogProgress(progress);
  auto made = engine::MakeCudaEngine(options.model, *engine_options, GroupRanksWanted(role));
  if (!made.ok()) return made.status();
  *gpu = std::move(made->device);
  return MadeEngine{std::move(made->engine), made->group_ranks_max};
}

absl::StatusOr<MadeEngine> MakeEmulated(const WorkerOptions& options, scheduler::Role role,
                                        std::unique_ptr<engine::Device> device) {
  auto made = MakeEmulatedEngine(options, std::move(device));
  if (!made.ok()) return made.status();
  return MadeEngine{*std::move(made), GroupRanksWanted(role)};
}

absl::StatusOr<MadeEngine> MakeEngine(const WorkerOptions& options, scheduler::Role role,
                                      std::unique_ptr<engine::Device> device, bool pages_move,
                                      const Progress& progress,
                                      std::shared_ptr<engine::Device>* gpu) {
  absl::StatusOr<MadeEngine> made = absl::InvalidArgumentError(
      absl::StrCat("--device: '", options.device, "' is not cpu, cuda:N or emulated"));
  if (options.device == "cpu") {
    made = MakeCpuEngine(options, role, std::move(device), pages_move, progress);
  }
  if (options.device == "emulated") {
    made = MakeEmulated(options, role, std::move(device));
  }
  if (options.IsCuda()) made = MakeGpuEngine(options, role, progress, gpu);
  if (!made.ok()) return AboutModel(options, made.status());
  return made;
}

// nullopt: the best that a group can take.
absl::StatusOr<std::optional<engine::CommPath>> CommPathOf(const WorkerOptions& options) {
  if (options.comm_path == "auto") return std::nullopt;
  const std::optional<engine::CommPath> path = engine::CommPathOf(options.comm_path);
  if (!path.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--comm-path: '", options.comm_path, "' is not auto, ipc, nccl or host"));
  }
  if (*path == engine::CommPath::kHost || options.IsCuda()) return path;
  return absl::InvalidArgumentError(absl::StrCat(
      "--comm-path: '", options.comm_path, "' needs a GPU, but --device is ", options.device));
}

// `gpu` null: of buffers in the host's memory.
absl::StatusOr<std::unique_ptr<engine::PathFabric>> MakeFabric(
    const WorkerOptions& options, scheduler::Role role, std::shared_ptr<engine::UcxPlane> plane,
    std::shared_ptr<engine::Device> gpu) {
  auto path = CommPathOf(options);
  if (!path.ok()) return path.status();
  // NCCL chooses its own way to other hosts.
  if (options.require_encryption && !path->has_value()) *path = engine::CommPath::kHost;
  auto hosts = DataPlaneOf(options, /*offset=*/1);
  if (!hosts.ok()) return hosts.status();
  if (role == scheduler::Role::kDecode) {
    // Groups are of one node, and their step feeds need shared memory in any case: no port.
    hosts->tls = "self,shm";
    hosts->tcp_port = 0;
    hosts->net_device.clear();
  }
  engine::WorkerFabricOptions fabric_options = {
      .hosts = *hosts,
      .plane = std::move(plane),
      .path = *path,
      .warn = [](const std::string& what) { LogWarning(what); }};
  // GroupContexts makes all aligned groups, whatever the model's heads can be dealt to.
  if (GroupRanksWanted(role) > 1) fabric_options.step_ranks_max = engine::kGroupRanksMax;
  if (gpu == nullptr) return engine::MakeHostFabric(fabric_options);
  return engine::MakeGpuFabric(options.device, std::move(gpu), fabric_options);
}

// What lets handoffs go straight between GPUs of this node. Null: through the host's memory.
absl::StatusOr<std::shared_ptr<engine::PeerOpener>> MakeOpener(const WorkerOptions& options) {
  if (options.handoff_path != "auto" && options.handoff_path != "host") {
    return absl::InvalidArgumentError(
        absl::StrCat("--handoff-path: '", options.handoff_path, "' is not auto or host"));
  }
  if (!options.IsCuda() || options.handoff_path == "host") return nullptr;
  absl::StatusOr<std::shared_ptr<engine::PeerOpener>> opener =
      engine::MakeCudaPeerOpener(options.device);
  if (opener.ok() || !absl::IsUnavailable(opener.status())) return opener;
  LogWarning("handoffs go through the host's memory",
             {{"reason", std::string(opener.status().message())}});
  return nullptr;
}

void WarnIfNotShared(engine::PeerOpener* opener, const engine::StepEngine& engine) {
  for (const engine::KvRegion& region : engine.KvRegions()) {
    const absl::Status shared = opener->Export(region.base).status();
    if (shared.ok()) continue;
    LogWarning("handoffs to this worker go through the host's memory",
               {{"reason", std::string(shared.message())}});
    return;
  }
}

// The transport's id of a region of the engine's KV. On a GPU the region is the engine's own
// memory.
absl::StatusOr<engine::RegionId> RegionOf(const engine::KvRegion& region, bool on_gpu,
                                          const engine::RegisteredDevice& memory,
                                          engine::Transport* transport) {
  if (!on_gpu) return memory.RegionAt(region.base);
  const absl::StatusOr<engine::Region> registered =
      transport->Register(region.base, static_cast<size_t>(region.bytes));
  if (!registered.ok()) return registered.status();
  return registered->id;
}

// Null when handoffs are one-sided.
absl::StatusOr<std::unique_ptr<engine::StagingReceiver>> MakeStaging(const WorkerOptions& options,
                                                                     const WorkerEngine& worker) {
  if (options.handoff == "one-sided") return nullptr;
  if (options.handoff != "staging") {
    return absl::InvalidArgumentError(
        absl::StrCat("--handoff: '", options.handoff, "' is not one-sided or staging"));
  }
  const engine::KvSpec& kv = worker.engine->Spec().kv;
  const int64_t slots =
      std::clamp<int64_t>(options.handoff_staging_bytes / kv.BlockBytes(), 0, 1 << 20);
  if (slots < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--handoff-staging-bytes: ", options.handoff_staging_bytes,
                     " is less than one KV block, which has ", kv.BlockBytes(), " bytes"));
  }
  return engine::StagingReceiver::Create(worker.transport.get(), kv, worker.engine->KvRegions(),
                                         static_cast<int>(options.handoff_staging_buffers),
                                         static_cast<int>(slots), worker.copies);
}

}  // namespace

absl::StatusOr<WorkerEngine> MakeWorkerEngine(const WorkerOptions& options, scheduler::Role role,
                                              const Progress& progress) {
  WorkerEngine out;
  if (options.IsCuda()) {
    auto copies = engine::MakeCudaCopyStream(options.device);
    if (!copies.ok()) return NameTheFlag(options, copies.status());
    out.copies = *std::move(copies);
  }
  const auto opener = MakeOpener(options);
  if (!opener.ok()) return NameTheFlag(options, opener.status());
  // Before the model is loaded: what is wrong with the flags.
  const auto path = CommPathOf(options);
  if (!path.ok()) return path.status();
  const auto hosts = DataPlaneOf(options, /*offset=*/0);
  if (!hosts.ok()) return hosts.status();
  // One for handoffs and collectives.
  const auto plane = engine::UcxPlane::Make(*hosts);
  if (!plane.ok()) return plane.status();
  absl::StatusOr<std::unique_ptr<engine::Transport>> transport =
      engine::MakeUcxTransport(*hosts, out.copies, *opener, *plane);
  if (!transport.ok()) return AboutDataPort(options, 0, transport.status());
  out.transport = *std::move(transport);
  auto device =
      std::make_unique<engine::RegisteredDevice>(out.transport.get(), engine::MakeCpuDevice());
  const engine::RegisteredDevice* memory = device.get();
  std::shared_ptr<engine::Device> gpu;
  // What a network's adapter writes to is pinned, all of it.
  const bool pinned = (*plane)->fabric();
  auto made = MakeEngine(options, role, std::move(device), !pinned, progress, &gpu);
  if (!made.ok()) return made.status();
  out.engine = std::move(made->engine);
  out.group_ranks_max = made->group_ranks_max;
  out.sharing = std::move(made->sharing);
  out.cannot_share = CannotShare(options);
  auto fabric = MakeFabric(options, role, *plane, std::move(gpu));
  if (!fabric.ok()) {
    const absl::Status named = NameTheFlag(options, fabric.status());
    return role == scheduler::Role::kPrefill ? AboutDataPort(options, 1, named) : named;
  }
  out.fabric = *std::move(fabric);
  if (*opener != nullptr) WarnIfNotShared(opener->get(), *out.engine);
  for (const engine::KvRegion& region : out.engine->KvRegions()) {
    const auto id = RegionOf(region, options.IsCuda(), *memory, out.transport.get());
    if (!id.ok()) return id.status();
    out.regions.push_back(*id);
  }
  absl::StatusOr<std::string> description = out.transport->Describe(out.regions);
  if (!description.ok()) return description.status();
  out.description = *std::move(description);
  if (role == scheduler::Role::kDecode) {
    auto staging = MakeStaging(options, out);
    if (!staging.ok()) return staging.status();
    out.staging = *std::move(staging);
  }
  return out;
}

scheduler::HandoffShape ShapeOf(const engine::EngineSpec& spec) {
  return {spec.kv, spec.model_hash};
}

std::string ServedName(const WorkerOptions& options) {
  if (!options.served_name.empty()) return options.served_name;
  const std::filesystem::path path(options.model);
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace skein::services
