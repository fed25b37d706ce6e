#include "engine/ucx/ucx_context.h"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/ucx/rdma_devices.h"

namespace skein::engine {
namespace {

std::string TlsOf(const UcxOptions& options) {
  if (!options.tls.empty()) return options.tls;
  const char* const environment = std::getenv("UCX_TLS");
  return environment == nullptr ? "all" : environment;
}

bool MayUse(std::initializer_list<const char*> transports, const UcxOptions& options) {
  const std::string tls = TlsOf(options);
  const auto named = [&](const char* name) { return tls.find(name) != std::string::npos; };
  return named("all") || named("^") || std::any_of(transports.begin(), transports.end(), named);
}

absl::Status Configure(const UcxOptions& options, std::span<const UcxSetting> more,
                       ucp_config_t* config) {
  std::vector<UcxSetting> settings(more.begin(), more.end());
  settings.emplace_back("KEEPALIVE_INTERVAL", absl::StrCat(options.keepalive.count(), "ms"));
  std::string tls = WithoutTcp(TlsOf(options));
  // The operator's word comes first.
  if (!options.net_device.empty() && std::getenv("UCX_NET_DEVICES") == nullptr) {
    const std::vector<std::string> rdma = RdmaDevicesBehind(options.net_device);
    if (!rdma.empty()) settings.emplace_back("NET_DEVICES", absl::StrJoin(rdma, ","));
    if (rdma.empty()) tls = WithoutRdma(tls);
  }
  settings.emplace_back("TLS", tls);
  // UCX_POSIX_ERROR_HANDLING and UCX_SYSV_ERROR_HANDLING: both share this name inside UCX.
  if (MayUseSharedMemory(options)) settings.emplace_back("MM_ERROR_HANDLING", "y");
  for (const auto& [name, value] : settings) {
    auto status = FromUcs(ucp_config_modify(config, name, value.c_str()), name);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ucp_context_h> MakeContext(const UcxOptions& options,
                                          std::span<const UcxSetting> more) {
  ucp_config_t* config = nullptr;
  auto status = FromUcs(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  if (!status.ok()) return status;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  status = Configure(options, more, config);
  if (status.ok()) status = FromUcs(ucp_init(&params, config, &context), "ucp_init");
  ucp_config_release(config);
  if (!status.ok()) return status;
  return context;
}

absl::StatusOr<ucp_worker_h> MakeWorker(ucp_context_h context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // the owner's lock
  ucp_worker_h worker = nullptr;
  auto status = FromUcs(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
  if (!status.ok()) return status;
  return worker;
}

absl::StatusOr<std::string> AddressOf(ucp_worker_h worker) {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  auto status = FromUcs(ucp_worker_get_address(worker, &address, &bytes), "ucp_worker_get_address");
  if (!status.ok()) return status;
  std::string text(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker, address);
  return text;
}

std::string InfoOf(ucp_context_h context) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "";
  ucp_context_print_info(context, stream);
  std::fclose(stream);
  const std::string info(text, bytes);
  std::free(text);
  return info;
}

}  // namespace

bool MayUseSharedMemory(const UcxOptions& options) {
  return MayUse({"shm", "sm", "mm", "posix", "sysv"}, options);
}

bool MayUseTcp(const UcxOptions& options) { return MayUse({"tcp"}, options); }

absl::StatusOr<UcxContext> MakeUcxContext(const UcxOptions& options,
                                          std::span<const UcxSetting> more) {
  auto context = MakeContext(options, more);
  if (!context.ok()) return context.status();
  auto worker = MakeWorker(*context);
  if (!worker.ok()) {
    ucp_cleanup(*context);
    return worker.status();
  }
  auto address = AddressOf(*worker);
  if (!address.ok()) {
    ucp_worker_destroy(*worker);
    ucp_cleanup(*context);
    return address.status();
  }
  return UcxContext{*context, *worker, *std::move(address), HasFabric(InfoOf(*context))};
}

std::string WithoutTcp(const std::string& tls) {
  if (tls.empty() || tls == "all") return "^tcp";
  const bool negated = tls[0] == '^';
  std::vector<std::string> names = absl::StrSplit(tls.substr(negated ? 1 : 0), ',');
  std::erase(names, "tcp");
  if (negated) names.push_back("tcp");
  if (names.empty()) return "self";
  return absl::StrCat(negated ? "^" : "", absl::StrJoin(names, ","));
}

std::string WithoutRdma(const std::string& tls) {
  if (tls.empty() || tls == "all") return "^ib";
  if (tls[0] == '^') return absl::StrCat(tls, ",ib");
  std::vector<std::string> names = absl::StrSplit(tls, ',');
  std::erase_if(names, [](const std::string& name) {
    if (name == "ib" || name == "srd") return true;
    const std::string kind = name.substr(0, 2);
    return (kind == "rc" || kind == "ud" || kind == "dc") && (name.size() == 2 || name[2] == '_');
  });
  return names.empty() ? "self" : absl::StrJoin(names, ",");
}

bool HasFabric(const std::string& info) {
  for (const char* const name : {"rc_", "ud_", "dc_", "srd", "ugni"}) {
    if (info.find(absl::StrCat(" ", name)) != std::string::npos) return true;
  }
  return false;
}

void Destroy(const UcxContext& context) {
  ucp_worker_destroy(context.worker);
  ucp_cleanup(context.context);
}

absl::Status FromUcs(int ucs_status, const char* what) {
  const auto status = static_cast<ucs_status_t>(ucs_status);
  if (status == UCS_OK) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", ucs_status_string(status));
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return absl::ResourceExhaustedError(text);
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);  // all that concerns the peer
  }
}

std::string TransportsOfEndpointInfo(const std::string& info) {
  std::vector<std::string> names;
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) {
    const size_t lane = line.find("lane[");
    const size_t colon =
        lane == std::string::npos ? lane : line.find(':', line.find(']', lane) + 2);
    const size_t slash = colon == std::string::npos ? colon : line.find('/', colon);
    if (slash == std::string::npos) continue;
    std::string name = line.substr(colon + 1, slash - colon - 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string joined;
  for (const std::string& name : names) absl::StrAppend(&joined, joined.empty() ? "" : "+", name);
  return joined;
}

}  // namespace skein::engine
