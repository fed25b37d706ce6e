#include "services/router/component_options.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu_device.h"
#include "services/base/process.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

}  // namespace

std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

RouterShellOptions ShellOptions(const RouterOptions& options) {
  RouterShellOptions out;
  out.core.max_streams = options.max_streams;
  out.core.max_queued = options.max_queued;
  // Requests bring their deadlines; lines of jobs have longer ones.
  out.core.request_deadline_us =
      std::max(static_cast<int64_t>(options.request_deadline_s * 1e6), RouterApi::kLineDeadlineUs);
  out.core.resume_wait_us = static_cast<int64_t>(options.resume_wait_s * 1e6);
  out.orchestrators = options.orchestrators();
  out.incarnation = RandomIncarnation();
  return out;
}

size_t HeldBytesMax(const RouterOptions& options) {
  if (options.max_held_bytes > 0) return static_cast<size_t>(options.max_held_bytes);
  const auto memory = engine::ReadHostMemory({});
  const size_t quarter = memory.ok() ? memory->total_bytes / 4 : size_t{256} << 20;
  return std::max(quarter, 2 * static_cast<size_t>(options.max_body_bytes));
}

http::ServerOptions HttpOptions(const RouterOptions& options,
                                std::shared_ptr<http::ByteBudget> bodies) {
  http::ServerOptions out;
  out.bodies = std::move(bodies);
  out.host = options.host;
  out.port = static_cast<uint16_t>(options.port);
  out.header_bytes_max = static_cast<size_t>(options.max_header_bytes);
  out.body_bytes_max = static_cast<size_t>(options.max_body_bytes);
  out.connections_max = static_cast<size_t>(options.max_connections);
  out.idle_timeout = Milliseconds(options.idle_timeout_s);
  out.read_timeout = Milliseconds(options.read_timeout_s);
  out.write_timeout = Milliseconds(options.write_timeout_s);
  out.answer_timeout = Milliseconds(options.request_deadline_s);
  out.certificates = tls::ProcessSecurity().certificates;
  out.need_certificate = tls::ProcessSecurity().mutual == tls::Mutual::kAll;
  return out;
}

EdgeOptions EdgeOptionsOf(const RouterOptions& options, Accounts* accounts) {
  return {.allowed_origins = options.allowed_origins,
          .api_key_file = options.api_key_file,
          .host = options.host,
          .allowed_hosts = options.allowed_hosts,
          .tenants_file = options.tenants_file,
          .accounts = accounts};
}

RouterApiOptions ApiOptions(const RouterOptions& options, TraceRecorder* trace,
                            const RequestTracing* tracing, Accounts* accounts) {
  RouterApiOptions out;
  out.max_prompt_tokens = options.max_prompt_tokens;
  out.max_choices = options.max_choices;
  out.max_streams = options.max_streams;
  out.max_queued = options.max_queued;
  out.default_max_tokens = options.default_max_tokens;
  out.request_deadline_us = static_cast<int64_t>(options.request_deadline_s * 1e6);
  out.strict = options.strict_api;
  out.queue_max = static_cast<size_t>(options.max_streams + 2 * options.max_queued);
  out.trace = trace;
  out.tracing = tracing;
  out.accounts = accounts;
  return out;
}

OfflineJobsOptions JobsOptions(
    const RouterOptions& options, uint64_t incarnation,
    const std::shared_ptr<http::ByteBudget>& bodies, const RouterApi* api,
    std::function<absl::StatusOr<std::shared_ptr<const Caller>>(const std::string& owner)> caller) {
  const auto draining = [api] { return api->draining(); };
  return {.client = {.orchestrators = options.orchestrators().front()},
          .files = {.file_bytes_max = static_cast<size_t>(options.max_file_bytes),
                    .bodies = bodies,
                    .draining = draining},
          .batches = {.strict = options.strict_api, .draining = draining},
          .lines = {.router = incarnation,
                    .lines_max = std::min(options.job_lines_max, options.max_streams / 2),
                    .bodies = bodies,
                    .caller = std::move(caller)}};
}

ConsoleOptions ConsoleOptionsOf(const RouterOptions& options, std::vector<std::string> models,
                                uint64_t incarnation) {
  ConsoleOptions out{.cells = options.orchestrators(),
                     .models = std::move(models),
                     .hosts = options.console_hosts,
                     .token_file = options.admin.token_file,
                     .needs_api_key = !options.api_key_file.empty(),
                     .router = absl::StrCat(incarnation)};
  out.hosts.insert(out.hosts.end(),
                   {HostName(), options.host, options.advertise, options.admin.host});
  return out;
}

}  // namespace skein::services
