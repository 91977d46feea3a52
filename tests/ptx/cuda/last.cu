// Every CTA leaves a partial sum; the one that counts last adds them up (threadFenceReduction of the
// CUDA samples, with the fence behind the atomic that its readers need).

__device__ u32 count;

extern "C" __global__ void f(const float *x, float *part, float *y) {
    __shared__ float s[64];
    __shared__ bool last;
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    if (t < 32) s[t] += s[t + 32];
    __syncthreads();
    if (t == 0) {
        float sum = 0;
        for (int i = 0; i < 32; ++i) sum += s[i];
        part[blockIdx.x] = sum;
        __threadfence();  // release
        u32 ticket = atomicInc(&count, gridDim.x);
        __threadfence();  // acquire
        last = ticket == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        float sum = 0;
        for (int i = t; i < gridDim.x; i += 64) sum += part[i];
        s[t] = sum;
        __syncthreads();
        if (t == 0) {
            y[0] = s[0] + s[1] + s[2] + s[3];
            count = 0;
        }
    }
}
