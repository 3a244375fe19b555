#include "virtual_gpu/runtime.h"

#include <fmt/format.h>

// CUDA's functions for streams and events.

namespace virtual_gpu {
namespace {

Event& event_of(const Runtime& runtime, cudaEvent_t handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  if (!runtime.events.contains(event)) {
    throw Refused(cudaErrorInvalidResourceHandle, "expected an event, got one that was destroyed, or another handle");
  }
  return *event;
}

/// An event that the host asks about: not one that a capture recorded.
Event& event_for_host(const Runtime& runtime, cudaEvent_t handle) {
  Event& event = event_of(runtime, handle);
  if (const auto capture = event.capture.lock()) {
    capture->broken = true;
    throw Refused(cudaErrorCapturedEvent, "the event was recorded in a stream that is captured");
  }
  return event;
}

cudaError_t make_stream(const char* name, cudaStream_t* stream, unsigned flags) {
  return call(name, [&](Runtime& runtime) {
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
      throw Refused(cudaErrorInvalidValue, fmt::format("unknown flags {}", flags));
    }
    *stream = reinterpret_cast<cudaStream_t>(
        runtime.streams.create(flags == cudaStreamDefault, virtual_gpu::current_device()));
    return cudaSuccess;
  });
}

cudaError_t make_event(const char* name, cudaEvent_t* event, unsigned flags) {
  return call(name, [&](Runtime& runtime) {
    auto* made = new Event;
    made->device = current_device();
    made->has_time = (flags & cudaEventDisableTiming) == 0;
    runtime.events.insert(made);
    *event = reinterpret_cast<cudaEvent_t>(made);
    return cudaSuccess;
  });
}

void record(Runtime& runtime, cudaStream_t stream_handle, cudaEvent_t event_handle) {
  Stream& stream = runtime.stream_for_work(stream_handle);
  Event& event = event_of(runtime, event_handle);
  if (event.device != stream.device) {
    throw Refused(
        cudaErrorInvalidResourceHandle,
        fmt::format("an event of device {} is recorded in a stream of device {}", event.device, stream.device));
  }
  runtime.streams.record(stream, event);
}

/// Waits for a stream's work, or asks whether it is done.
Stream& stream_for_host(Runtime& runtime, const char* name, cudaStream_t handle) {
  Stream& stream = runtime.stream_of(handle);
  const bool of_default = &stream == &runtime.streams.default_stream() && runtime.streams.captures_blocking();
  if (stream.capture != nullptr || of_default) {
    runtime.streams.break_captures();
    throw Refused(of_default ? cudaErrorStreamCaptureImplicit : cudaErrorStreamCaptureUnsupported,
                  std::string(name) + " of a stream that is captured");
  }
  return stream;
}

}  // namespace
}  // namespace virtual_gpu

using virtual_gpu::call;
using virtual_gpu::Event;
using virtual_gpu::Refused;
using virtual_gpu::Runtime;
using virtual_gpu::Stream;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return virtual_gpu::make_stream("cudaStreamCreate", stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return virtual_gpu::make_stream("cudaStreamCreateWithFlags", stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return virtual_gpu::make_stream("cudaStreamCreateWithPriority", stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call("cudaStreamDestroy", [&](Runtime& runtime) {
    Stream& stream = runtime.stream_of(handle);
    if (&stream == &runtime.streams.default_stream()) {
      throw Refused(cudaErrorInvalidResourceHandle, "the default stream cannot be destroyed");
    }
    runtime.streams.destroy(&stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call("cudaStreamSynchronize", [&](Runtime& runtime) {
    runtime.streams.finish(virtual_gpu::stream_for_host(runtime, "cudaStreamSynchronize", handle));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call("cudaStreamQuery", [&](Runtime& runtime) {
    const Stream& stream = virtual_gpu::stream_for_host(runtime, "cudaStreamQuery", handle);
    runtime.streams.pass_time();
    return runtime.streams.is_done(stream.last) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  return call("cudaStreamWaitEvent", [&](Runtime& runtime) {
    Stream& stream = runtime.stream_for_work(handle);
    const Event& event = virtual_gpu::event_of(runtime, event_handle);
    const auto capture = event.capture.lock();
    if (stream.capture != nullptr && stream.capture != capture) {
      stream.capture->broken = true;
      throw Refused(capture == nullptr ? cudaErrorStreamCaptureIsolation : cudaErrorStreamCaptureMerge,
                    "a stream that is captured waits for an event from outside of its capture");
    }
    runtime.streams.wait_for(stream, event);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", [&](Runtime& runtime) {
    const virtual_gpu::Action action = [function, data] {
      function(data);
      return 0.0;
    };
    runtime.streams.put(runtime.stream_for_work(handle), virtual_gpu::later("cudaLaunchHostFunc", action));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return virtual_gpu::make_event("cudaEventCreate", event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return virtual_gpu::make_event("cudaEventCreateWithFlags", event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call("cudaEventDestroy", [&](Runtime& runtime) {
    Event& event = virtual_gpu::event_of(runtime, handle);
    runtime.events.erase(&event);
    delete &event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return call("cudaEventRecord", [&](Runtime& runtime) {
    virtual_gpu::record(runtime, stream, handle);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
  return call("cudaEventRecordWithFlags", [&](Runtime& runtime) {
    if (flags != cudaEventRecordDefault) {
      throw Refused(cudaErrorNotSupported, "the virtual GPU has no events that a graph records");
    }
    virtual_gpu::record(runtime, stream, handle);
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call("cudaEventSynchronize", [&](Runtime& runtime) {
    const Event& event = virtual_gpu::event_for_host(runtime, handle);
    if (event.record != nullptr) {
      runtime.streams.finish(event.record->ticket);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call("cudaEventQuery", [&](Runtime& runtime) {
    const Event& event = virtual_gpu::event_for_host(runtime, handle);
    runtime.streams.pass_time();
    return event.record == nullptr || runtime.streams.is_done(event.record->ticket) ? cudaSuccess : cudaErrorNotReady;
  });
}

// The time of the virtual clock, which counts work; never a measurement.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return call("cudaEventElapsedTime", [&](const Runtime& runtime) {
    const Event& start = virtual_gpu::event_for_host(runtime, start_handle);
    const Event& end = virtual_gpu::event_for_host(runtime, end_handle);
    for (const Event* event : {&start, &end}) {
      if (event->record == nullptr || !event->has_time) {
        throw Refused(cudaErrorInvalidResourceHandle, "expected two events with times that were recorded");
      }
    }
    if (!runtime.streams.is_done(start.record->ticket) || !runtime.streams.is_done(end.record->ticket)) {
      return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>((end.record->seconds - start.record->seconds) * 1e3);
    return cudaSuccess;
  });
}

}  // extern "C"
