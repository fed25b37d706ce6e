load("//third_party/system:system_library.bzl", "system_library")

def system_repositories():
    system_library(name = "absl", apt = "libabsl-dev", headers = ["absl/strings/string_view.h"], linkopts = [
        "-labsl_status", "-labsl_statusor", "-labsl_strings", "-labsl_str_format_internal", "-labsl_cord",
        "-labsl_synchronization", "-labsl_time", "-labsl_time_zone", "-labsl_civil_time", "-labsl_hash", "-labsl_raw_hash_set", "-labsl_base",
        "-labsl_random_distributions", "-labsl_raw_logging_internal", "-labsl_throw_delegate",
    ])
    system_library(name = "protobuf", apt = "libprotobuf-dev protobuf-compiler", pkg_config = "protobuf")
    system_library(name = "grpc", apt = "libgrpc++-dev protobuf-compiler-grpc", pkg_config = "grpc++",
                   linkopts = ["-lgrpc++", "-lgrpc", "-lgpr"], deps = ["@//third_party/system:tsan_grpc", "@protobuf", "@absl"])
    system_library(name = "grpc_reflection", apt = "libgrpc++-dev", pkg_config = "grpc++", linkopts = ["-lgrpc++_reflection"], deps = ["@grpc"])
    system_library(name = "ucx", apt = "libucx-dev", pkg_config = "ucx", headers = ["ucp/api/ucp.h"])
    system_library(name = "prometheus_cpp", apt = "prometheus-cpp-dev", pkg_config = "prometheus-cpp-pull", headers = ["prometheus/exposer.h"])
    system_library(name = "gtest", apt = "libgtest-dev libgmock-dev", pkg_config = "gmock", linkopts = ["-lgmock", "-lgtest", "-lpthread"])
    system_library(name = "gtest_main", apt = "libgtest-dev libgmock-dev", pkg_config = "gmock_main", linkopts = ["-lgmock_main"], deps = ["@gtest"])
    system_library(name = "benchmark", apt = "libbenchmark-dev", pkg_config = "benchmark")
    system_library(name = "json", apt = "nlohmann-json3-dev", pkg_config = "nlohmann_json", linkopts = ["-lm"])
    system_library(name = "onednn", apt = "libdnnl-dev", headers = ["dnnl.hpp"], linkopts = ["-ldnnl"])
    system_library(name = "openblas", apt = "libopenblas-dev", headers = ["cblas.h"], linkopts = ["-lopenblas"])
    system_library(name = "openssl", apt = "libssl-dev", pkg_config = "openssl")
    system_library(name = "curl", apt = "libcurl4-openssl-dev", pkg_config = "libcurl")
    system_library(name = "nghttp2", apt = "libnghttp2-dev", pkg_config = "libnghttp2")
    system_library(name = "boost", apt = "libboost-dev", headers = ["boost/version.hpp"], linkopts = ["-lpthread"])
    system_library(name = "pcre2", apt = "libpcre2-dev", pkg_config = "libpcre2-8")
    system_library(name = "sqlite3", apt = "libsqlite3-dev", pkg_config = "sqlite3")
    system_library(name = "utf8proc", apt = "libutf8proc-dev", pkg_config = "libutf8proc")
    system_library(name = "absl_flags", apt = "libabsl-dev", headers = ["absl/flags/flag.h"], linkopts = [
        "-labsl_flags_parse", "-labsl_flags_usage", "-labsl_flags_internal",
        "-labsl_flags_marshalling", "-labsl_flags_reflection", "-labsl_flags_config",
        "-labsl_flags_program_name", "-labsl_flags_private_handle_accessor", "-labsl_flags_commandlineflag",
        "-labsl_flags_commandlineflag_internal", "-labsl_flags_usage_internal",
    ], deps = ["@absl"])
    system_library(name = "cli11", apt = "libcli11-dev", pkg_config = "CLI11", headers = ["CLI/CLI.hpp"], linkopts = ["-lm"])
    system_library(name = "spdlog", apt = "libspdlog-dev", pkg_config = "spdlog")
    system_library(name = "yaml_cpp", apt = "libyaml-cpp-dev", pkg_config = "yaml-cpp")
