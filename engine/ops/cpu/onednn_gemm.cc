#include "engine/ops/cpu/onednn_gemm.h"

#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <unordered_map>

#include "dnnl.hpp"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kMostProducts = 512;

dnnl::memory::data_type DataType(DType dtype) {
  SKEIN_CHECK(dtype != DType::kF16);
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// OpenMP's thread count belongs to the calling thread, so each thread that calls oneDNN says it.
void UseOneOmpThread() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

// oneDNN reports by exception. Shapes are checked before, so one means a broken installation or no
// memory.
template <typename Body>
auto OrDie(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oneDNN: %s\n", error.what());
    std::abort();
  }
}

}  // namespace

class OneDnnGemm::Product {
 public:
  Product(const Shape& shape, const dnnl::engine& engine)
      : x({shape.rows, shape.depth}, DataType(shape.in_dtype),
          dnnl::memory::dims{shape.x_stride, 1}),
        w({shape.depth, shape.columns}, DataType(shape.in_dtype),
          dnnl::memory::dims{1, shape.w_stride}),
        bias({1, shape.columns}, dnnl::memory::data_type::f32,
             dnnl::memory::dims{shape.columns, 1}),
        out({shape.rows, shape.columns}, DataType(shape.out_dtype),
            dnnl::memory::dims{shape.out_stride, 1}) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto desc =
        shape.has_bias ? dnnl::matmul::desc(x, w, bias, out) : dnnl::matmul::desc(x, w, out);
    const dnnl::matmul::primitive_desc primitive_desc(desc, attributes, engine);
    scratch = primitive_desc.scratchpad_desc();
    primitive = dnnl::matmul(primitive_desc);
  }

  dnnl::memory::desc x, w, bias, out, scratch;
  dnnl::matmul primitive;
};

struct OneDnnGemm::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::map<Shape, std::shared_ptr<const Product>> products;
};

OneDnnGemm::OneDnnGemm() {
  UseOneOmpThread();
  state_ = OrDie([] { return std::make_unique<State>(); });
}

OneDnnGemm::~OneDnnGemm() = default;

std::shared_ptr<const OneDnnGemm::Product> OneDnnGemm::Prepare(const Shape& shape) {
  const auto found = state_->products.find(shape);
  if (found != state_->products.end()) return found->second;
  UseOneOmpThread();
  // Ragged batches bring ever new row counts; starting over is rare and cheap beside a prefill.
  if (state_->products.size() >= kMostProducts) state_->products.clear();
  auto product = OrDie([&] { return std::make_shared<const Product>(shape, state_->engine); });
  state_->products.emplace(shape, product);
  return product;
}

size_t OneDnnGemm::ScratchBytes(const Product& product) { return product.scratch.get_size(); }

void OneDnnGemm::Run(const Product& product, const void* x, const void* w, const float* bias,
                     void* out, void* scratch) const {
  UseOneOmpThread();
  OrDie([&] {
    const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, state_->engine, const_cast<void*>(data));
    };
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, memory(product.x, x)},
        {DNNL_ARG_WEIGHTS, memory(product.w, w)},
        {DNNL_ARG_DST, memory(product.out, out)},
        {DNNL_ARG_SCRATCHPAD, memory(product.scratch, scratch)}};
    if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(product.bias, bias));
    dnnl::stream stream(state_->engine);
    product.primitive.execute(stream, arguments);
    stream.wait();
  });
}

}  // namespace skein::engine
