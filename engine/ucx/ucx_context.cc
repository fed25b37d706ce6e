#include "engine/ucx/ucx_context.h"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

// Large socket buffers from the start: on a busy machine they gave handoffs of scattered blocks a
// quarter more than the kernel's own growth (bench/transport/README.md). MAX_IOV lets a put of
// kFragmentsMax fragments (ucx_endpoint.h) leave in one system call. CONN_NB: a connection to a
// host that does not answer is waited for beside the others; UCX's default holds up the whole
// worker, 127 s.
constexpr std::pair<const char*, const char*> kTcpSettings[] = {
    {"SNDBUF", "4M"}, {"RCVBUF", "4M"}, {"MAX_IOV", "16"}, {"CONN_NB", "y"}};

bool MayUse(std::initializer_list<const char*> transports, const UcxOptions& options) {
  const char* const environment = std::getenv("UCX_TLS");
  const std::string tls =
      !options.tls.empty() ? options.tls : (environment == nullptr ? "all" : environment);
  const auto named = [&](const char* name) { return tls.find(name) != std::string::npos; };
  return named("all") || named("^") || std::any_of(transports.begin(), transports.end(), named);
}

absl::Status Configure(const UcxOptions& options, std::span<const UcxSetting> more,
                       ucp_config_t* config) {
  std::vector<UcxSetting> settings(more.begin(), more.end());
  settings.emplace_back("KEEPALIVE_INTERVAL", absl::StrCat(options.keepalive.count(), "ms"));
  if (!options.tls.empty()) settings.emplace_back("TLS", options.tls);
  if (!options.net_device.empty()) settings.emplace_back("NET_DEVICES", options.net_device);
  // UCX's names of a transport's own settings have no prefix here.
  if (MayUseTcp(options) && options.tcp_port != 0) {
    settings.emplace_back("PORT_RANGE", absl::StrCat(options.tcp_port, "-", options.tcp_port));
  }
  for (const auto& [name, value] : kTcpSettings) {
    if (MayUseTcp(options) && std::getenv(absl::StrCat("UCX_TCP_", name).c_str()) == nullptr) {
      settings.emplace_back(name, value);
    }
  }
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
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
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
  return UcxContext{*context, *worker, *std::move(address)};
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

std::string LanesOfEndpointInfo(const std::string& info) {
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
