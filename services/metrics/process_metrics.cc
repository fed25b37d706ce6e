#include "services/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "services/base/version.h"
#include "services/log/log.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Seconds since 1970: boot time (/proc/stat, "btime") and field 22 of /proc/self/stat, in ticks.
double StartTime() {
  double boot_s = 0;
  std::ifstream stat("/proc/stat");
  for (std::string line; std::getline(stat, line);) {
    if (line.rfind("btime ", 0) == 0) boot_s = std::stod(line.substr(6));
  }
  std::ifstream self("/proc/self/stat");
  std::string text;
  std::getline(self, text);
  // The process's name, in parentheses, may contain blanks; field 3, the state, follows it.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return boot_s + std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

prometheus::Counter& TlsReloads(const char* result, Metrics* metrics) {
  return metrics->Counter(
      "skein_tls_reloads_total",
      "How often the files of --tls-dir have changed: taken (ok), or found to be unusable, so that "
      "the ones before them stay in use (failed).",
      {{"result", result}});
}

// From Linux 6.2 on, the folder's size is their number; before, they are counted.
double OpenDescriptors() {
  struct stat folder {};
  if (stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0) {
    return static_cast<double>(folder.st_size);
  }
  DIR* entries = opendir("/proc/self/fd");
  if (entries == nullptr) return 0;
  double count = 0;
  while (readdir(entries) != nullptr) ++count;
  closedir(entries);
  return count - 3;  // ".", ".." and the descriptor used for reading
}

}  // namespace

ProcessMetrics::ProcessMetrics(const std::string& service, Metrics* metrics)
    : cpu_seconds_(metrics->Counter("process_cpu_seconds_total",
                                    "User and system time of the process, in seconds.")),
      resident_bytes_(metrics->Gauge("process_resident_memory_bytes", "Resident memory.")),
      virtual_bytes_(metrics->Gauge("process_virtual_memory_bytes", "Virtual memory.")),
      open_fds_(metrics->Gauge("process_open_fds", "Open file descriptors.")),
      max_fds_(metrics->Gauge("process_max_fds", "The limit of open file descriptors.")),
      lost_log_lines_(
          metrics->Counter("skein_log_lines_lost_total",
                           "Log lines dropped: standard error was full or could not be written.")),
      certificate_expires_s_(metrics->Gauge(
          "skein_tls_certificate_expires_timestamp_seconds",
          "When the certificate of --tls-dir that is in use expires, in seconds since 1970; 0: "
          "there is none.")),
      reloads_done_(TlsReloads("ok", metrics)),
      reloads_failed_(TlsReloads("failed", metrics)) {
  metrics->Gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
      .Set(StartTime());
  metrics
      ->Gauge("skein_build_info", "Always 1; the labels name the service and its version.",
              {{"service", service}, {"version", kVersion}})
      .Set(1);
  Refresh();
}

void ProcessMetrics::Refresh() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Metrics::RaiseTo(&cpu_seconds_, SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime));
  double virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  virtual_bytes_.Set(virtual_pages * page_bytes);
  resident_bytes_.Set(resident_pages * page_bytes);
  open_fds_.Set(OpenDescriptors());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  max_fds_.Set(static_cast<double>(limit.rlim_cur));
  Metrics::RaiseTo(&lost_log_lines_, static_cast<double>(LostLogLines()));
  const auto& certificates = tls::ProcessSecurity().certificates;
  if (certificates == nullptr) return;
  certificate_expires_s_.Set(static_cast<double>(certificates->files()->expires_s));
  const tls::Certificates::Counts counts = certificates->counts();
  Metrics::RaiseTo(&reloads_done_, static_cast<double>(counts.reloaded));
  Metrics::RaiseTo(&reloads_failed_, static_cast<double>(counts.failed));
}

}  // namespace skein::services
