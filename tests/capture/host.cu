// What host code asks of the runtime besides launches.
#include <cstdio>
#include <cuda_runtime.h>

__constant__ int table[4];

__global__ void __launch_bounds__(384, 1) add(float *x, int n, float scale) {
    __shared__ float s[32];
    if (blockIdx.x) return;
    if (threadIdx.x < 8) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) x[threadIdx.x] = s[7 - threadIdx.x] * scale + table[1];
}

__global__ void __launch_bounds__(128, 4) other() {}

int main() {
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    cudaLaunchConfig_t config = {};
    config.gridDim = 128, config.blockDim = 384;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 128, attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    int clusters, blocks;
    cudaOccupancyMaxActiveClusters(&clusters, add, &config);
    printf("%s, %d.%d, %d multiprocessors, %zu bytes, %d clusters\n", device.name, device.major, device.minor,
           device.multiProcessorCount, device.sharedMemPerMultiprocessor, clusters);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, other, 128, 0);
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, add);
    printf("%d blocks, %d registers, %zu bytes\n", blocks, attributes.numRegs, attributes.sharedSizeBytes);

    float *x, back[8];
    int values[4] = {1, 2, 3, 4};
    cudaMalloc(&x, 32);
    cudaMemset(x, 7, 32);
    cudaMemcpyToSymbol(table, values, 16);
    add<<<1, 2048>>>(x, 7, 0.5f);
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    add<<<1, 32>>>(x, 7, 0.5f);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    int n = 7;
    float scale = 0.5f;
    void *arguments[] = {&x, &n, &scale};
    cudaLaunchCooperativeKernel(add, 2, 32, arguments, 0, 0);
    other<<<1, 128>>>();
    cudaMemcpy(back, x, 32, cudaMemcpyDeviceToHost);
    printf("memory %d %d\n", ((char *)back)[0], ((char *)back)[31]);

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaEvent_t event;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    add<<<3, 32, 0, stream>>>(x, 7, 0.5f);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    const char *launched = cudaGetErrorString(cudaGraphLaunch(executable, stream));
    cudaEventCreate(&event);
    printf("graph %s, event %s\n", launched, cudaGetErrorString(cudaEventRecord(event, stream)));
    cudaFree(x);
}
